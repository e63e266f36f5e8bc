//! A file with one list collection (FIL-5).

use bytes::Bytes;

use super::super::fields::{Fields, Malformed, build, put_bytes, put_element, put_message};
use super::super::response::WRAPPER;
use super::resource::read_any;
use super::response::DecodeError;
use sluice_xds::{Kind, TypeUrl};

/// Wraps a `Resource` in a `DiscoveryResponse`. The resource must have a name and contain a list collection.
/// All entries of the collection must be inline, because a file can't serve the others.
pub(super) fn as_response(resource: &[u8]) -> Result<Bytes, DecodeError> {
    let (mut name, mut any) = ("", None);
    for field in Fields::of(resource) {
        match field? {
            (2, payload) => any = Some(read_any(payload.bytes()?)?),
            (3, payload) => name = payload.text()?,
            _ => {}
        }
    }
    let refused = |reason: String| Err(DecodeError::Collection(reason));
    let Some((type_url, value)) = any else { return refused("the Resource has no content".to_owned()) };
    let kind = TypeUrl::new(type_url).kind();
    if !matches!(kind, Kind::ClusterCollection | Kind::ListenerCollection | Kind::LbEndpointCollection) {
        let type_url: String = type_url.chars().take(200).collect();
        return refused(format!("the type {type_url:?} is not a list collection; use a DiscoveryResponse"));
    }
    if name.is_empty() {
        return refused("the resource has no name".to_owned());
    }
    if let Some(index) = first_locator(value)? {
        return refused(format!("entries[{index}] of {name:?} is not inline"));
    }
    let message = build(0, |sink| {
        put_message(sink, 2, |any| {
            put_bytes(any, 1, WRAPPER.as_bytes());
            put_element(any, 2, resource);
        });
    });
    Ok(message.into())
}

/// The index of the first entry that is a locator instead of an inline resource.
fn first_locator(collection: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut index = 0;
    for field in Fields::of(collection) {
        let (1, entry) = field? else { continue };
        for field in Fields::of(entry.bytes()?) {
            if let (1, _) = field? {
                return Ok(Some(index));
            }
        }
        index += 1;
    }
    Ok(None)
}
