//! Trust anchors of several trust domains in one JSON file (gRFC A87, SPIFFE Trust Domain and Bundle, section
//! 4).

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::certificate::Certificate;
use super::fault::Fault;
use super::pem::BLOCKS_MAX;
use super::pool::check_anchor;
use sluice_identity::spiffe::check_trust_domain;

/// The trust anchors by trust domain.
pub type BundleMap = BTreeMap<String, Vec<CertificateDer<'static>>>;

/// Takes objects only; by itself, the parser would also take a list of the fields in their order.
struct JsonObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonObject<T>, D::Error> {
        deserializer.deserialize_map(BundleFields(PhantomData))
    }
}

struct BundleFields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BundleFields<T> {
    type Value = JsonObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
    }
}

#[derive(Deserialize)]
struct File {
    trust_domains: Domains,
}

/// A map that refuses a domain twice: pooled or replaced anchors would be a guess (IDN-3).
struct Domains(BTreeMap<String, JsonObject<Bundle>>);

#[derive(Deserialize)]
struct Bundle {
    keys: Vec<JsonObject<Key>>,
}

#[derive(Deserialize)]
struct Key {
    #[serde(default, rename = "use")]
    usage: String,
    #[serde(default)]
    x5c: Vec<String>,
}

impl<'de> Deserialize<'de> for Domains {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Domains, D::Error> {
        deserializer.deserialize_map(OnceEach)
    }
}

struct OnceEach;

impl<'de> Visitor<'de> for OnceEach {
    type Value = Domains;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from trust domains to bundles")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Domains, A::Error> {
        let mut domains = BTreeMap::new();
        while let Some(domain) = map.next_key::<String>()? {
            check_trust_domain(&domain)
                .map_err(|error| A::Error::custom(format!("trust domain {domain:?}: {error}")))?;
            if domains.contains_key(&domain) {
                return Err(A::Error::custom(format!("trust domain {domain:?} stands twice")));
            }
            domains.insert(domain, map.next_value()?);
        }
        Ok(Domains(domains))
    }
}

/// Reads a bundle map.
///
/// # Errors
/// Malformed JSON, a domain twice or without anchors, a certificate that is none.
pub fn read(path: &Path, bytes: &[u8]) -> Result<BundleMap, Fault> {
    // Text of serde_json: position and reason, without content of the file.
    let JsonObject(file): JsonObject<File> = serde_json::from_slice(bytes)
        .map_err(|error| Fault::passing(path, format!("not a SPIFFE bundle map: {error}")))?;
    let mut map = BundleMap::new();
    let mut count = 0;
    for (domain, JsonObject(bundle)) in file.trust_domains.0 {
        let mut anchors = Vec::new();
        for JsonObject(key) in bundle.keys.iter().filter(|JsonObject(key)| key.usage == "x509-svid") {
            count += 1;
            let fault =
                |reason: &str| Fault::new(path, format!("trust domain {domain:?}, key {count}: {reason}"));
            let [text] = key.x5c.as_slice() else {
                return Err(fault("x5c must have exactly one certificate"));
            };
            let der = STANDARD.decode(text).map_err(|_| fault("x5c is not valid base64"))?;
            let facts =
                Certificate::parse(&der).map_err(|reason| fault(&format!("not a certificate ({reason})")))?;
            let der = CertificateDer::from(der);
            check_anchor(&der, &facts).map_err(fault)?;
            anchors.push(der);
        }
        if anchors.is_empty() {
            let reason = format!("trust domain {domain:?} has no key with use \"x509-svid\"");
            return Err(Fault::new(path, reason));
        }
        map.insert(domain, anchors);
    }
    if count > BLOCKS_MAX {
        return Err(Fault::new(path, format!("{count} keys; at most {BLOCKS_MAX} are allowed")));
    }
    if map.is_empty() {
        return Err(Fault::new(path, "contains no trust domain"));
    }
    Ok(map)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::telemetry::wall_now;
    use crate::trust::issue::Authority;

    fn read_text(text: &str) -> Result<Vec<(String, usize)>, String> {
        let map = read(Path::new("map.json"), text.as_bytes()).map_err(|fault| fault.to_string())?;
        Ok(map.into_iter().map(|(domain, anchors)| (domain, anchors.len())).collect())
    }

    #[test]
    fn idn_3_each_domain_has_anchors_of_its_own() {
        let authority = Authority::new("test", Duration::from_secs(3600), wall_now()).unwrap();
        let der = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
        let x5c = STANDARD.encode(&der);
        let key = format!(r#"{{"use":"x509-svid","kty":"EC","x5c":["{x5c}"]}}"#);
        let jwt = r#"{"use":"jwt-svid","kty":"EC","kid":"1"}"#;
        let domain = |name: &str, keys: &str| format!(r#""{name}":{{"spiffe_sequence":1,"keys":[{keys}]}}"#);
        let file = |domains: &str| format!(r#"{{"trust_domains":{{{domains}}}}}"#);

        let two = file(&format!(
            "{},{}",
            domain("a", &format!("{key},{jwt}")),
            domain("b", &format!("{key},{key}"))
        ));
        assert_eq!(read_text(&two), Ok(vec![("a".to_owned(), 1), ("b".to_owned(), 2)]));

        let twice = file(&format!("{},{}", domain("a", &key), domain("a", &key)));
        assert!(read_text(&twice).unwrap_err().contains(r#"trust domain "a" stands twice"#));
        for (text, error) in [
            (
                file(&domain("a", jwt)),
                r#"map.json: trust domain "a" has no key with use "x509-svid""#.to_owned(),
            ),
            (file(""), "map.json: contains no trust domain".to_owned()),
            (
                file(&domain("a", r#"{"use":"x509-svid","x5c":[]}"#)),
                r#"map.json: trust domain "a", key 1: x5c must have exactly one certificate"#.to_owned(),
            ),
            (
                file(&domain("a", r#"{"use":"x509-svid","x5c":["!"]}"#)),
                r#"map.json: trust domain "a", key 1: x5c is not valid base64"#.to_owned(),
            ),
        ] {
            assert_eq!(read_text(&text), Err(error));
        }
        // Found by the fuzz target `bundle_map`: lists in place of objects, with the fields in order.
        let listed = format!(r#"["x509-svid",["{x5c}"]]"#);
        for text in [
            format!(r#"[{{"a":{{"keys":[{key}]}}}}]"#),
            file(&format!(r#""a":[[{key}]]"#)),
            file(&domain("a", &listed)),
        ] {
            assert!(read_text(&text).unwrap_err().contains("expected an object"), "{text}");
        }
        assert!(read_text(&file(&domain("A", &key))).unwrap_err().contains("the trust domain must have"));
        assert!(read_text("{").unwrap_err().contains("not a SPIFFE bundle map"));
    }
}
