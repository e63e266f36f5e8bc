//! The fields of requests, each handled on arrival.

use super::super::dynamic::read_locator;
use super::super::fields::{Fields, Malformed, text};
use super::super::frame::{Bound, ReadError};
use super::super::status;
use super::ReaderLimits;
use sluice_xds::dynamic::is_reserved;
use sluice_xds::{DeltaRequest, Request, ResourceName, SotwRequest};

pub(super) fn node_field(request: &Request) -> u32 {
    match request {
        Request::Sotw(_) => 2,
        Request::Delta(_) => 1,
    }
}

/// Unknown fields are skipped, as protobuf demands.
pub(super) fn is_known(request: &Request, number: u32) -> bool {
    match request {
        Request::Sotw(_) => (1..=7).contains(&number),
        Request::Delta(_) => (1..=9).contains(&number),
    }
}

pub(super) fn put_sotw_field(
    request: &mut SotwRequest,
    number: u32,
    payload: &[u8],
    limits: &ReaderLimits,
) -> Result<(), ReadError> {
    match number {
        1 => request.version_info = short_text(Bound::VersionBytes, payload, limits.name_bytes)?,
        3 => push_name(&mut request.resource_names, payload, limits)?,
        4 => request.type_url = short_text(Bound::TypeUrlBytes, payload, limits.type_url_bytes)?,
        5 => request.response_nonce = short_text(Bound::NonceBytes, payload, limits.name_bytes)?,
        6 => request.error_detail = Some(status::read(payload, limits.error_detail_bytes)?),
        7 => push_locator(&mut request.resource_names, payload, limits)?,
        _ => {}
    }
    Ok(())
}

pub(super) fn put_delta_field(
    request: &mut DeltaRequest,
    number: u32,
    payload: &[u8],
    limits: &ReaderLimits,
) -> Result<(), ReadError> {
    match number {
        2 => request.type_url = short_text(Bound::TypeUrlBytes, payload, limits.type_url_bytes)?,
        3 => push_name(&mut request.subscribe, payload, limits)?,
        4 => push_name(&mut request.unsubscribe, payload, limits)?,
        5 => push_initial_version(&mut request.initial_resource_versions, payload, limits)?,
        6 => request.response_nonce = short_text(Bound::NonceBytes, payload, limits.name_bytes)?,
        7 => request.error_detail = Some(status::read(payload, limits.error_detail_bytes)?),
        8 => push_locator(&mut request.subscribe, payload, limits)?,
        9 => push_locator(&mut request.unsubscribe, payload, limits)?,
        _ => {}
    }
    Ok(())
}

/// Sorts a map. If a key is repeated, the last entry counts, as in any protobuf map.
pub(super) fn settle(request: &mut DeltaRequest) {
    let versions = &mut request.initial_resource_versions;
    versions.reverse();
    versions.sort_by(|(a, _), (b, _)| a.cmp(b));
    versions.dedup_by(|(later, _), (earlier, _)| later == earlier);
}

fn short_text(limit: Bound, payload: &[u8], allowed: usize) -> Result<String, ReadError> {
    ReadError::check(limit, payload.len(), allowed)?;
    Ok(text(payload)?.to_owned())
}

fn push_name(names: &mut Vec<ResourceName>, payload: &[u8], limits: &ReaderLimits) -> Result<(), ReadError> {
    ReadError::check(Bound::Names, names.len() + 1, limits.names_per_request)?;
    ReadError::check(Bound::NameBytes, payload.len(), limits.name_bytes)?;
    names.push(ResourceName::new(check_name(text(payload)?)?));
    Ok(())
}

/// Rejects names with an ending that is reserved for the relay's internal names.
pub fn check_name(name: &str) -> Result<&str, Malformed> {
    if is_reserved(name) {
        return Err(Malformed::new("a name ends with a reserved character, U+FDD0 or U+FDD1"));
    }
    Ok(name)
}

/// Reads a locator. Each set of parameters makes a name of its own (DYN-7); without parameters, a locator is
/// the plain name (DYN-8).
fn push_locator(
    names: &mut Vec<ResourceName>,
    payload: &[u8],
    limits: &ReaderLimits,
) -> Result<(), ReadError> {
    ReadError::check(Bound::Names, names.len() + 1, limits.names_per_request)?;
    ReadError::check(Bound::NameBytes, payload.len(), limits.name_bytes)?;
    let (name, parameters) = read_locator(payload)?;
    let plain = ResourceName::new(check_name(name)?);
    let is_collection = plain.is_wildcard() || ResourceName::received(name).is_glob();
    if !parameters.is_empty() && is_collection {
        return Err(ReadError::Unsupported("dynamic parameters of wildcards and globs"));
    }
    names.push(ResourceName::located(name, &parameters));
    Ok(())
}

fn push_initial_version(
    versions: &mut Vec<(ResourceName, String)>,
    entry: &[u8],
    limits: &ReaderLimits,
) -> Result<(), ReadError> {
    ReadError::check(Bound::InitialVersions, versions.len() + 1, limits.names_per_request)?;
    let (mut name, mut version) = (&[][..], &[][..]);
    for field in Fields::of(entry) {
        match field? {
            (1, payload) => name = payload.bytes()?,
            (2, payload) => version = payload.bytes()?,
            _ => {}
        }
    }
    ReadError::check(Bound::NameBytes, name.len(), limits.name_bytes)?;
    let version = short_text(Bound::ResourceVersionBytes, version, limits.name_bytes)?;
    versions.push((ResourceName::new(text(name)?), version));
    Ok(())
}
