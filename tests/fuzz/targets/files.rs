//! Files of certificates: bundle maps, PEM, revocation lists.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use sluice::trust::anchors::AnchorFiles;
use sluice::trust::bundle_map;
use sluice::trust::contents::Contents;
use sluice::trust::crl::{self, CrlSettings, Depth};
use sluice::trust::fault::Fault;
use sluice::trust::identity::IdentityKind;
use sluice::trust::pair::PairFiles;
use sluice::trust::server::{
    ChainLimits, ClientCertificate, MinVersion, OnClientExpiry, ServerFiles, ServerTls,
};

use super::draw::documents;
use super::{MEMORY, Target, issue};

pub const BUNDLE_MAP: Target = Target {
    name: "bundle_map",
    run: read_bundle_map,
    seeds: || {
        let x5c = base64_of_pem(&issue::authority(1).pem);
        let key = format!(r#"{{"use":"x509-svid","kty":"OKP","x5c":["{x5c}"]}}"#);
        let other = r#"{"use":"jwt-svid","kty":"EC","kid":"1"}"#;
        [
            format!(r#"{{"trust_domains":{{"a":{{"spiffe_sequence":1,"keys":[{key},{other}]}},"b.c":{{"keys":[{key}]}}}}}}"#),
            format!(r#"{{"trust_domains":{{"a":{{"keys":[{key},{key}]}}}}}}"#),
            format!(r#"{{"trust_domains":{{"a":{{"keys":[{other}]}}}}}}"#),
            r#"{"trust_domains":{}}"#.to_owned(),
            format!(r#"[{{"a":[[["x509-svid",["{x5c}"]]]]}}]"#),
        ]
        .map(String::into_bytes)
        .to_vec()
    },
    words: &[
        "trust_domains",
        "keys",
        "x5c",
        "use",
        "x509-svid",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"\"",
        "null",
        "\"a\":",
    ],
    mutations: 3_000,
    memory: MEMORY,
};

fn base64_of_pem(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with('-')).collect()
}

/// IDN-3: each domain has exactly the anchors that stand under its name.
fn read_bundle_map(data: &[u8]) {
    let Ok(map) = bundle_map::read(Path::new("map.json"), data) else { return };
    // The whole parser refuses some ignored values, such as numbers that are too large.
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let domains = value["trust_domains"].as_object().expect("an object");
    let found: Vec<&String> = map.keys().collect();
    let mut expected: Vec<&String> = domains.keys().collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for (domain, anchors) in &map {
        let keys = domains[domain]["keys"].as_array().expect("a list of keys");
        let svid = |key: &&Value| key["use"] == "x509-svid";
        let texts: Vec<_> =
            keys.iter().filter(svid).map(|key| key["x5c"][0].as_str().expect("a text")).collect();
        assert_eq!(texts.len(), anchors.len());
        for (text, anchor) in texts.iter().zip(anchors) {
            let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("base64, by another reader");
            assert_eq!(der, *anchor);
        }
    }
}

/// A directory with the files of one listener.
struct Site(tempfile::TempDir);

thread_local! {
    static SITE: OnceCell<Site> = const { OnceCell::new() };
}

impl Site {
    fn with<T>(run: impl FnOnce(&Site) -> T) -> T {
        SITE.with(|site| run(site.get_or_init(|| Site(tempfile::tempdir().unwrap()))))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn settings(&self, has_lists: bool) -> ServerTls {
        let crl = CrlSettings {
            files: vec![self.path("crl.pem")],
            depth: Depth::Leaf,
            allows_unknown: false,
            allows_expired: false,
        };
        ServerTls {
            certificates: vec![PairFiles {
                certificate: self.path("tls.crt"),
                private_key: self.path("tls.key"),
            }],
            client_certificate: ClientCertificate::Required,
            anchors: Some(AnchorFiles::Authorities {
                file: self.path("ca.crt"),
                trust_domain: Some("d".into()),
            }),
            identity: IdentityKind::Spiffe,
            clients: Vec::new(),
            crl: has_lists.then_some(crl),
            min_version: MinVersion::Tls12,
            refresh_interval: Duration::from_secs(600),
            on_client_expiry: OnClientExpiry::End,
        }
    }

    fn read(&self, settings: &ServerTls) -> Result<ServerFiles, Fault> {
        let (contents, _) = Contents::read(&settings.files())?;
        ServerFiles::read(settings, ChainLimits::default(), &contents, None, issue::now())
    }
}

/// A good pair and its authority.
struct Good {
    certificate: String,
    private_key: String,
    authority: String,
    client: CertificateDer<'static>,
    /// An empty list, a list with the client, and a list with another.
    lists: [String; 3],
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let authority = issue::authority(1);
    let leaf = authority.leaf(2, &[], &["relay.example"], |_| {});
    let client = authority.leaf(3, &["spiffe://d/web"], &[], |_| {});
    Good {
        certificate: leaf.pem(),
        private_key: issue::key(2).serialize_pem(),
        authority: authority.pem.clone(),
        client: client.der().clone(),
        lists: [authority.revoke(&[]), authority.revoke(&[7]), authority.revoke(&[8, 9])],
    }
});

pub const PEM_GENERATION: Target = Target {
    name: "pem_generation",
    run: read_generation,
    seeds: || {
        let Good { certificate, private_key, authority, .. } = &*GOOD;
        let other = issue::key(9).serialize_pem();
        [
            format!("{certificate}\n--\n{private_key}\n--\n{authority}"),
            format!("{certificate}{authority}\n--\n{private_key}\n--\n{authority}{authority}"),
            format!("{certificate}\n--\n{other}\n--\n{authority}"),
            format!(
                "{private_key}{certificate}\n--\n{certificate}{private_key}\n--\n# a remark\n{authority}"
            ),
        ]
        .map(String::into_bytes)
        .to_vec()
    },
    words: &[
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN ",
        "-----END ",
        "-----",
        "EC PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "X509 CRL",
        "\n--\n",
        "=",
        "\r\n",
    ],
    mutations: 1_500,
    memory: MEMORY,
};

/// CRT-3, TLS-14: a generation has exactly the blocks of its files, and a fault shows nothing of the key.
fn read_generation(data: &[u8]) {
    let parts = documents(data);
    let part = |index: usize| parts.get(index).copied().unwrap_or_default();
    let (certificate, key, authorities) = (part(0), part(1), part(2));
    let read = Site::with(|site| {
        site.write("tls.crt", certificate);
        site.write("tls.key", key);
        site.write("ca.crt", authorities);
        site.read(&site.settings(false))
    });
    match read {
        Ok(_) => {
            // A good set has whole blocks, and one key of them all.
            let count = |bytes: &[u8], text: &str| String::from_utf8_lossy(bytes).matches(text).count();
            assert!(count(certificate, "-----BEGIN CERTIFICATE-----") >= 1);
            assert!(count(authorities, "-----BEGIN CERTIFICATE-----") >= 1);
            assert!(count(key, "PRIVATE KEY-----") >= 1);
        }
        Err(fault) => {
            let (shown, key) = (format!("{fault} {fault:?}"), String::from_utf8_lossy(key));
            let is_secret = |line: &&str| line.len() > 30 && !line.contains("-----");
            for line in key.lines().filter(is_secret) {
                assert!(!shown.contains(line), "{shown}");
            }
        }
    }
}

pub const REVOCATION_LIST: Target = Target {
    name: "revocation_list",
    run: read_lists,
    seeds: || {
        let lists = &GOOD.lists;
        [lists[0].clone(), lists[1].clone(), lists.concat(), format!("{}{}", lists[2], lists[0])]
            .map(String::into_bytes)
            .to_vec()
    },
    words: &[
        "-----BEGIN X509 CRL-----\n",
        "-----END X509 CRL-----\n",
        "-----",
        "MII",
        "AAAA",
        "=",
        "\n",
        "////",
    ],
    mutations: 1_500,
    memory: MEMORY,
};

/// CRT-13: only the authority's own list lets a client pass, and its own list with the client refuses the client.
fn read_lists(data: &[u8]) {
    let good = &*GOOD;
    Site::with(|site| {
        site.write("tls.crt", good.certificate.as_bytes());
        site.write("tls.key", good.private_key.as_bytes());
        site.write("ca.crt", good.authority.as_bytes());
        site.write("crl.pem", data);
        let settings = site.settings(true);
        let (contents, _) = Contents::read(&settings.files()).unwrap();
        let lists = settings.crl.as_ref().map(|crl| crl::read(crl, &contents));
        let generation = site.read(&settings);
        let Some(Ok(lists)) = lists else {
            assert!(generation.is_err(), "a generation without its lists");
            return;
        };
        let Ok(generation) = generation else { return };
        let der = |pem: &String| {
            rustls::pki_types::CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap()
        };
        let genuine: Vec<_> = good.lists.iter().map(der).collect();
        let has = |index: usize| lists.contains(&genuine[index]);
        let passes = generation.judge_again(std::slice::from_ref(&good.client), issue::now()).is_ok();
        assert!(!passes || has(0) || has(2), "a forged list lets a client pass");
        // webpki takes the first list of the issuer.
        let only_revoked = lists.iter().all(|list| *list == genuine[1]);
        assert!(!(passes && only_revoked), "a revoked client passes");
    });
}
