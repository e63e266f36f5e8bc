//! Test resources as valid messages of their types, so that a real control plane takes the resources: each
//! has its name and, in a harmless field, the text of the test.

use prost::Message;

use super::proto::{Body, DataSource, GenericSecret, NamedEndpoint, ScopedRoute, Secret, VirtualHost};
use super::{CDS, EDS, LDS, NDS, RDS, SDS, SRDS, VHDS, istiod};

pub fn encode(type_url: &str, name: &str, text: &str) -> Vec<u8> {
    let (name, text) = (name.to_owned(), text.to_owned());
    match type_url {
        SDS => {
            let secret = Some(DataSource { inline_string: text });
            Secret { name, generic: Some(GenericSecret { secret }) }.encode_to_vec()
        }
        SRDS => ScopedRoute { name, route_configuration_name: text }.encode_to_vec(),
        VHDS => VirtualHost { name, domains: vec![text] }.encode_to_vec(),
        NDS => istiod::name_table(&text),
        CDS | LDS => Body { name, stat_name: text, ..Body::default() }.encode_to_vec(),
        RDS => Body { name, headers: vec![text], ..Body::default() }.encode_to_vec(),
        EDS => Body { name, endpoints: vec![NamedEndpoint { key: text }], ..Body::default() }.encode_to_vec(),
        _ => Body { name, text, ..Body::default() }.encode_to_vec(),
    }
}

/// The text of a resource; empty if there is none.
pub fn text(type_url: &str, value: &[u8]) -> String {
    match type_url {
        SDS => {
            let secret = Secret::decode(value).ok().and_then(|secret| secret.generic?.secret);
            secret.map(|source| source.inline_string).unwrap_or_default()
        }
        SRDS => ScopedRoute::decode(value).map(|scope| scope.route_configuration_name).unwrap_or_default(),
        NDS => istiod::first_address(value),
        VHDS => VirtualHost::decode(value).map(|host| host.domains.concat()).unwrap_or_default(),
        _ => {
            let Ok(body) = Body::decode(value) else { return String::new() };
            let endpoints = body.endpoints.into_iter().map(|endpoint| endpoint.key);
            let mut texts = [body.text, body.stat_name].into_iter().chain(body.headers).chain(endpoints);
            texts.find(|text| !text.is_empty()).unwrap_or_default()
        }
    }
}
