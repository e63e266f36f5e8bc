//! The fields of a node.

use bytes::Bytes;

use super::super::fields::{Fields, Malformed, Payload, text};
use super::super::frame::{Bound, ReadError};
use super::ReaderLimits;
use sluice_xds::{Locality, Node, UserAgentVersion, Value};

/// Later nodes of a stream may change `dynamic_parameters`; the id reveals a forbidden change of identity
/// (STR-3). `extensions` (9) and `listening_addresses` (11) are unused.
pub(super) fn is_kept(number: u32, first: bool) -> bool {
    if first { matches!(number, 1..=4 | 6..=8 | 10 | 12) } else { matches!(number, 1 | 12) }
}

pub(super) fn put_field(
    node: &mut Node,
    number: u32,
    payload: &[u8],
    limits: &ReaderLimits,
) -> Result<(), ReadError> {
    match number {
        1 => node.id = text(payload)?.to_owned(),
        2 => node.cluster = text(payload)?.to_owned(),
        3 => put_struct(&mut node.metadata, payload, limits.metadata_depth, limits)?,
        4 => put_locality(node.locality.get_or_insert_default(), payload)?,
        6 => node.user_agent_name = text(payload)?.to_owned(),
        7 => node.user_agent_version = Some(UserAgentVersion::Text(text(payload)?.to_owned())),
        8 => node.user_agent_version = Some(build_version(payload)?),
        10 => node.client_features.push(text(payload)?.to_owned()),
        12 => {
            check_parameters(payload)?;
            node.dynamic_parameters.push(Bytes::copy_from_slice(payload));
        }
        _ => {}
    }
    Ok(())
}

/// Features are a set (FEA-1) and parameters a map, so both are sorted.
pub(super) fn settle(node: &mut Node) {
    node.client_features.sort_unstable();
    node.client_features.dedup();
    node.dynamic_parameters.sort_unstable();
}

fn put_locality(locality: &mut Locality, message: &[u8]) -> Result<(), Malformed> {
    for field in Fields::of(message) {
        match field? {
            (1, payload) => locality.region = payload.text()?.to_owned(),
            (2, payload) => locality.zone = payload.text()?.to_owned(),
            (3, payload) => locality.sub_zone = payload.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(())
}

/// Checks an entry of `dynamic_parameters`. The entry goes upstream as received, except to a control plane
/// polled in JSON. There, an unreadable entry would break the requests of the whole class.
fn check_parameters(entry: &[u8]) -> Result<(), Malformed> {
    for field in Fields::of(entry) {
        match field? {
            (1, key) => drop(key.text()?),
            (2, value) => check_context(value.bytes()?)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks an `xds.core.v3.ContextParams`: a map of strings.
fn check_context(message: &[u8]) -> Result<(), Malformed> {
    for field in Fields::of(message) {
        let (1, parameter) = field? else { continue };
        for field in Fields::of(parameter.bytes()?) {
            let (1 | 2, text) = field? else { continue };
            text.text()?;
        }
    }
    Ok(())
}

/// The number of an `envoy.config.core.v3.BuildVersion`. Its metadata is unused.
fn build_version(message: &[u8]) -> Result<UserAgentVersion, Malformed> {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    for field in Fields::of(message) {
        let (1, version) = field? else { continue };
        for field in Fields::of(version.bytes()?) {
            match field? {
                (1, payload) => major = payload.varint()? as u32,
                (2, payload) => minor = payload.varint()? as u32,
                (3, payload) => patch = payload.varint()? as u32,
                _ => {}
            }
        }
    }
    Ok(UserAgentVersion::Build { major, minor, patch })
}

/// The entries of a `google.protobuf.Struct`. `depth`: remaining levels, this level included.
fn put_struct(
    fields: &mut std::collections::BTreeMap<String, Value>,
    message: &[u8],
    depth: usize,
    limits: &ReaderLimits,
) -> Result<(), ReadError> {
    let depth = descend(depth, limits)?;
    for field in Fields::of(message) {
        let (1, entry) = field? else { continue };
        let (mut key, mut value) = ("", Value::Null);
        for field in Fields::of(entry.bytes()?) {
            match field? {
                (1, payload) => key = payload.text()?,
                (2, payload) => value = read_value(payload.bytes()?, depth, limits)?,
                _ => {}
            }
        }
        fields.insert(key.to_owned(), value);
    }
    Ok(())
}

fn read_value(message: &[u8], depth: usize, limits: &ReaderLimits) -> Result<Value, ReadError> {
    let mut value = Value::Null;
    for field in Fields::of(message) {
        match field? {
            (1, _) => value = Value::Null,
            (2, Payload::Fixed64(bits)) => value = Value::Number(bits),
            (2, _) => return Err(Malformed::new("a number has another wire type").into()),
            (3, payload) => value = Value::String(payload.text()?.to_owned()),
            (4, payload) => value = Value::Bool(payload.varint()? != 0),
            (5, payload) => {
                let mut fields = Default::default();
                put_struct(&mut fields, payload.bytes()?, depth, limits)?;
                value = Value::Struct(fields);
            }
            (6, payload) => {
                let depth = descend(depth, limits)?;
                let elements = Fields::of(payload.bytes()?).filter_map(|field| match field {
                    Ok((1, payload)) => Some(
                        payload.bytes().map_err(ReadError::from).and_then(|e| read_value(e, depth, limits)),
                    ),
                    Ok(_) => None,
                    Err(error) => Some(Err(error.into())),
                });
                value = Value::List(elements.collect::<Result<_, _>>()?);
            }
            _ => {}
        }
    }
    Ok(value)
}

fn descend(depth: usize, limits: &ReaderLimits) -> Result<usize, ReadError> {
    let allowed = limits.metadata_depth;
    depth.checked_sub(1).ok_or(ReadError::OverLimit {
        limit: Bound::MetadataDepth,
        value: allowed + 1,
        allowed,
    })
}
