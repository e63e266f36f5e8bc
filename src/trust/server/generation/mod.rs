//! All files of a listener, read as a whole and ready for handshakes.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;

use super::resolver::Resolver;
use super::settings::{ChainLimits, ClientCertificate, ServerTls};
use super::verifier::ClientVerifier;
use crate::trust::anchors::Anchors;
use crate::trust::certificate::{Certificate, unix_time};
use crate::trust::contents::Contents;
use crate::trust::crl;
use crate::trust::fault::Fault;
use crate::trust::own_leaf::OwnAuthorities;
use crate::trust::pair::Pair;
use crate::trust::provider::provider;
use crate::trust::refusal::{Reason, Refusal};
use crate::trust::rotation::{self, Expiry};
use sluice_identity::Identity;

const HTTP1: &[u8] = b"http/1.1";
/// The protocols of listeners (TLS-3).
const ALPN: [&[u8]; 2] = [b"h2", HTTP1];

/// The text of a record and its head. Encryption adds up to 24 bytes, and a record is one allocation until
/// the kernel has taken it. At most 14 KiB, the allocator takes it from slabs. A larger one would have the
/// size class of the 16 KiB from which each HTTP/2 connection writes: whoever connects then gets memory full
/// of ciphertext for it, of which it would touch one page in four (TLS-11). A DATA frame of 16 KiB is two
/// records either way.
const RECORD_BYTES: usize = 14_336 - 24;

/// The files of a listener, in force together.
#[derive(Debug)]
pub struct ServerFiles {
    pub config: Arc<ServerConfig>,
    pairs: Vec<Pair>,
    clients: Option<Clients>,
}

/// Everything that judges clients.
#[derive(Debug)]
struct Clients {
    verifier: Arc<ClientVerifier>,
    anchors: Anchors,
    /// Read from the files, for the comparison of two generations.
    lists: Vec<rustls::pki_types::CertificateRevocationListDer<'static>>,
    valid_anchors: usize,
}

/// A proved client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved {
    pub identity: Identity,
    /// The validity of the leaf.
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

impl ServerFiles {
    /// Builds a generation from the contents of all files. `in_force` is the generation that the new one
    /// would replace.
    ///
    /// # Errors
    /// The first file that cannot be used; nothing of the generation is used then.
    pub fn read(
        settings: &ServerTls,
        limits: ChainLimits,
        contents: &Contents,
        in_force: Option<&ServerFiles>,
        now: SystemTime,
    ) -> Result<ServerFiles, Fault> {
        let mut pairs = Vec::new();
        for (index, files) in settings.certificates.iter().enumerate() {
            let old = in_force.and_then(|old| old.pairs.get(index));
            let pair = Pair::read(files, contents, old, now).map_err(|fault| {
                let key = format!("certificates[{index}].{}", fault.key);
                fault.at(key)
            })?;
            pairs.push(pair);
        }
        let clients = match &settings.anchors {
            Some(files) if settings.client_certificate != ClientCertificate::None => {
                let anchors = Anchors::read(files, contents)?;
                let lists = settings.crl.as_ref().map(|crl| crl::read(crl, contents)).transpose()?;
                let lists = lists.unwrap_or_default();
                let verifier = Arc::new(ClientVerifier::new(settings, limits, &anchors, &lists, now)?);
                let valid_anchors = anchors.valid_at(now);
                Some(Clients { verifier, anchors, lists, valid_anchors })
            }
            _ => None,
        };
        if let Some(Clients { anchors, .. }) = &clients {
            let authorities = OwnAuthorities { anchors, now };
            for (index, (new, files)) in pairs.iter().zip(&settings.certificates).enumerate() {
                let old = in_force.and_then(|old| old.pairs.get(index));
                let at = |fault: Fault| fault.at(format!("certificates[{index}].certificate_file"));
                authorities.check(new, old, &files.certificate).map_err(at)?;
            }
        }
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(settings.min_version.versions())
            .map_err(|_| Fault::new(std::path::Path::new(""), "no TLS version is enabled"))?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(clients.verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver::new(pairs.clone())));
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        // TLS-4: a resumed session would be judged by the rules of an earlier day.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        config.require_ems = true;
        config.max_fragment_size = Some(RECORD_BYTES);
        Ok(ServerFiles { config: Arc::new(config), pairs, clients })
    }

    /// The same for a server of HTTP/1.1 alone (TLS-3).
    #[must_use]
    pub fn for_http1(self) -> ServerFiles {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![HTTP1.to_vec()];
        ServerFiles { config: Arc::new(config), ..self }
    }

    /// The identity of a client after its handshake; anonymous without a certificate.
    ///
    /// # Errors
    /// The certificate has no identity. The verifier has refused such certificates before.
    pub fn prove(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<Option<Proved>, Refusal> {
        let (Some(clients), Some([leaf, ..])) = (&self.clients, chain) else { return Ok(None) };
        let facts = Certificate::parse(leaf).map_err(|text| Refusal::new(Reason::Identity, text))?;
        let identity =
            clients.verifier.identity(&facts).map_err(|text| Refusal::new(Reason::Identity, text))?;
        let Certificate { not_before, not_after, .. } = facts;
        Ok(Some(Proved { identity, not_before, not_after }))
    }

    /// Judges the chain of an open connection by the rules of this generation (CRT-8).
    ///
    /// # Errors
    /// The reason for which the chain would be refused now.
    pub fn judge_again(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<(), Refusal> {
        let (Some(clients), [leaf, above @ ..]) = (&self.clients, chain) else { return Ok(()) };
        clients.verifier.judge(leaf, above, unix_time(now)).map_err(|error| Refusal::of(&error))
    }
}

impl rotation::FilesInForce for ServerFiles {
    fn judges_like(&self, other: &ServerFiles) -> bool {
        match (&self.clients, &other.clients) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.anchors == b.anchors && a.lists == b.lists && a.valid_anchors == b.valid_anchors
            }
            _ => false,
        }
    }

    fn expiries(&self, now: SystemTime) -> Vec<Expiry> {
        let leaf = |(index, pair): (usize, &Pair)| Expiry {
            part: format!("certificates[{index}]"),
            not_before: pair.leaf.not_before,
            not_after: pair.leaf.not_after,
            is_own: true,
        };
        let mut expiries: Vec<Expiry> = self.pairs.iter().enumerate().map(leaf).collect();
        expiries.extend(self.clients.iter().filter_map(|clients| {
            let (not_before, not_after) = clients.anchors.first_to_end(now)?;
            Some(Expiry { part: "client_authorities".to_owned(), not_before, not_after, is_own: false })
        }));
        expiries
    }

    fn remarks(&self, now: SystemTime) -> Vec<String> {
        let mut remarks: Vec<String> = self.pairs.iter().filter_map(|pair| pair.remark()).collect();
        if let Some(Clients { anchors, .. }) = &self.clients {
            let authorities = OwnAuthorities { anchors, now };
            remarks.extend(self.pairs.iter().filter_map(|pair| authorities.remark(pair)));
            remarks.extend(anchors.remarks(now));
        }
        remarks
    }
}

#[cfg(test)]
mod tests;
