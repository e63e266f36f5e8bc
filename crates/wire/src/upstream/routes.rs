//! The route configurations that a listener takes from its control plane.

use std::collections::BTreeSet;

use crate::fields::{Fields, Payload};
use sluice_xds::ResourceName;

const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// The names of the route configurations in a listener's body, sorted. For studies alone: the relay serves
/// listeners unread. Parts that cannot be read name nothing.
pub fn route_names(listener: &[u8]) -> BTreeSet<ResourceName> {
    let mut names = BTreeSet::new();
    for (number, payload) in parts(listener) {
        match number {
            // `filter_chains` and `default_filter_chain`.
            3 | 25 => {
                for filter in inner(payload, 3) {
                    inner(filter, 4).for_each(|config| names.extend(of_manager(config)));
                }
            }
            // `api_listener`, of a client without sockets.
            19 => inner(payload, 1).for_each(|config| names.extend(of_manager(config))),
            _ => {}
        }
    }
    names
}

/// `rds.route_config_name` in an `Any` with a connection manager.
fn of_manager(any: &[u8]) -> Option<ResourceName> {
    let type_url = inner(any, 1).last().and_then(|text| std::str::from_utf8(text).ok())?;
    if type_url.rsplit('/').next() != Some(MANAGER) {
        return None;
    }
    let rds = inner(any, 2).flat_map(|manager| inner(manager, 3)).last()?;
    let name = inner(rds, 2).last().and_then(|text| std::str::from_utf8(text).ok())?;
    (!name.is_empty()).then(|| ResourceName::received(name))
}

/// The fields with bytes, up to the first error.
fn parts(message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    Fields::of(message).map_while(Result::ok).filter_map(|(number, payload)| match payload {
        Payload::Bytes(bytes) => Some((number, bytes)),
        Payload::Varint(_) | Payload::Fixed64(_) | Payload::Other => None,
    })
}

fn inner(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    parts(message).filter(move |(field, _)| *field == number).map(|(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes; lengths below 128.
    fn field(number: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut bytes);
        prost::encoding::encode_varint(content.len() as u64, &mut bytes);
        [bytes, content.to_vec()].concat()
    }

    fn manager(name: &str) -> Vec<u8> {
        let rds = field(3, &[field(1, b""), field(2, name.as_bytes())].concat());
        let type_url = format!("type.googleapis.com/{MANAGER}");
        [field(1, type_url.as_bytes()), field(2, &rds)].concat()
    }

    #[test]
    fn lrn_2_a_listener_names_its_route_configurations() {
        let filter = |name: &str| field(3, &[field(1, b"hcm"), field(4, &manager(name))].concat());
        let chain = [filter("b"), filter("a")].concat();
        let other = [field(1, b"type.googleapis.com/a.B"), field(2, &field(3, &field(2, b"no")))].concat();
        let chains = [field(3, &chain), field(25, &filter("c")), field(3, &field(3, &field(4, &other)))];
        let listener = [field(1, b"main"), chains.concat(), field(19, &field(1, &manager("d")))].concat();
        let texts: Vec<String> = route_names(&listener).iter().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(texts, ["a", "b", "c", "d"]);
        for length in 0..listener.len() {
            route_names(&listener[..length]);
        }
    }
}
