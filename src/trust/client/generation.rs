//! All files for one server, read as a whole and ready for handshakes.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;

use super::settings::{ClientTls, ServerAuthorities};
use super::verifier::{Roots, ServerVerifier};
use crate::trust::anchors::{AnchorFiles, Anchors};
use crate::trust::certificate::{Certificate, Reach};
use crate::trust::contents::Contents;
use crate::trust::fault::Fault;
use crate::trust::own_leaf::OwnAuthorities;
use crate::trust::pair::Pair;
use crate::trust::pool::AnchorPool;
use crate::trust::rotation::{self, Expiry, WatchedPlace};

/// The protocol above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Http2,
    /// REST.
    Http1,
}

impl Protocol {
    /// The name in ALPN (TLS-3).
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Http2 => b"h2",
            Protocol::Http1 => b"http/1.1",
        }
    }
}

/// The files for one server, in force together.
#[derive(Debug)]
pub struct Generation {
    pub config: Arc<ClientConfig>,
    pair: Option<Pair>,
    /// `None`: the authorities of the system.
    anchors: Option<Anchors>,
}

/// The files for one server. `name`: the place in logs and metrics.
pub fn place(name: String, tls: &ClientTls, protocol: Protocol) -> WatchedPlace<Generation> {
    let (files, refresh, tls) = (tls.files(), tls.refresh_interval, tls.clone());
    let build = move |contents: &Contents, in_force: Option<&Generation>, now| {
        Generation::read(&tls, protocol, contents, in_force, now)
    };
    WatchedPlace { name, files, refresh, build: Arc::new(build) }
}

impl Generation {
    fn read(
        tls: &ClientTls,
        protocol: Protocol,
        contents: &Contents,
        in_force: Option<&Generation>,
        now: SystemTime,
    ) -> Result<Generation, Fault> {
        let old = in_force.and_then(|old| old.pair.as_ref());
        let pair = tls.pair.as_ref().map(|files| Pair::read(files, contents, old, now)).transpose()?;
        let (roots, anchors) = read_roots(&tls.authorities, contents, now)?;
        if let (Some(pair), Some(files), Some(anchors)) = (&pair, &tls.pair, &anchors) {
            OwnAuthorities { anchors, now }.check(pair, old, &files.certificate)?;
        }
        let verifier = Arc::new(ServerVerifier { roots, match_sans: tls.match_sans.clone() });
        let builder = ClientConfig::builder_with_provider(tls.key_exchange.provider())
            .with_protocol_versions(tls.min_version.versions())
            .map_err(|_| Fault::new(Path::new("min_version"), "no TLS version is enabled"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &pair {
            Some(pair) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified.clone())))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.alpn().to_vec()];
        // TLS-4: a resumed handshake would check nothing. Early data is off by default.
        config.resumption = Resumption::disabled();
        Ok(Generation { config: Arc::new(config), pair, anchors })
    }

    /// The relay's own leaf.
    pub fn leaf(&self) -> Option<&Certificate> {
        self.pair.as_ref().map(|pair| &pair.leaf)
    }
}

fn read_roots(
    authorities: &ServerAuthorities,
    contents: &Contents,
    now: SystemTime,
) -> Result<(Roots, Option<Anchors>), Fault> {
    let (roots, anchors, path) = match authorities {
        ServerAuthorities::System => return Ok((Roots::Pooled(system_roots(now)?), None)),
        ServerAuthorities::Files(files @ AnchorFiles::Authorities { trust_domain, .. }) => {
            let anchors = Anchors::read(files, contents)?;
            (Roots::Pooled(anchors.pool(trust_domain.as_deref(), now)), anchors, files.path())
        }
        ServerAuthorities::Files(files @ AnchorFiles::BundleMap(_)) => {
            let anchors = Anchors::read(files, contents)?;
            (Roots::by_domain(&anchors, now), anchors, files.path())
        }
    };
    match roots.are_empty() {
        true => Err(Fault::new(path, "every authority has expired")),
        false => Ok((roots, Some(anchors))),
    }
}

/// The authorities of the host, without the expired ones (IDN-8, CRT-6).
fn system_roots(now: SystemTime) -> Result<AnchorPool, Fault> {
    let native = rustls_native_certs::load_native_certs().certs;
    let valid = native.into_iter().filter_map(|der| match Certificate::parse(&der) {
        Ok(facts) => (!facts.is_expired(now)).then_some((der, facts.reach)),
        // webpki may well read it.
        Err(_) => Some((der, Some(Reach::Others))),
    });
    let pool = AnchorPool::new(valid);
    if pool.is_empty() {
        let text =
            "none was found; expected ca_certificate_file, SSL_CERT_FILE or the package ca-certificates";
        return Err(Fault::new(Path::new("authorities of this host"), text).at("ca_certificate_file"));
    }
    Ok(pool)
}

impl rotation::FilesInForce for Generation {
    /// Servers are judged once, by their handshake: no connection is judged again.
    fn judges_like(&self, other: &Generation) -> bool {
        self.anchors == other.anchors
    }

    fn expiries(&self, now: SystemTime) -> Vec<Expiry> {
        let leaf = self.leaf().map(|leaf| Expiry {
            part: "certificate".to_owned(),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            is_own: true,
        });
        let first = self.anchors.as_ref().and_then(|anchors| anchors.first_to_end(now));
        let authority = first.map(|(not_before, not_after)| Expiry {
            part: "server_authorities".to_owned(),
            not_before,
            not_after,
            is_own: false,
        });
        leaf.into_iter().chain(authority).collect()
    }

    fn remarks(&self, now: SystemTime) -> Vec<String> {
        let mut remarks = self.anchors.as_ref().map(|anchors| anchors.remarks(now)).unwrap_or_default();
        remarks.extend(self.pair.as_ref().and_then(|pair| pair.remark()));
        if let (Some(pair), Some(anchors)) = (&self.pair, &self.anchors) {
            remarks.extend(OwnAuthorities { anchors, now }.remark(pair));
        }
        if self.leaf().and_then(|leaf| leaf.purposes).is_some_and(|purposes| !purposes.client) {
            remarks.push(
                "the extended key usage of our certificate lacks clientAuth; servers refuse it".to_owned(),
            );
        }
        remarks
    }
}
