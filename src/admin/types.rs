//! The check that a requested type exists, so that a typing error does not look like an empty list.

use super::state::Admin;
use crate::driver::api::status::names_type;
use crate::xds::TypeUrl;

/// The number of suggested types.
const NEAR_MAX: usize = 3;

/// The least likeness of a suggested type, by Jaro and Winkler's measure.
const NEAR_MIN: f64 = 0.8;

/// Fails, with suggestions, for a type that neither xDS nor any client or source has.
pub(super) fn check(admin: &Admin, text: Option<&str>) -> Result<(), String> {
    text.map_or(Ok(()), |text| resolve(admin, text).map(|_| ()))
}

/// The type with a name.
pub(super) fn resolve(admin: &Admin, text: &str) -> Result<TypeUrl, String> {
    let is_meant = |type_url: &TypeUrl| names_type(text, type_url);
    let known: Vec<TypeUrl> = TypeUrl::known().collect();
    let sources = admin.relay.sources();
    let held = || sources.iter().flat_map(|source| &source.types).map(|of| &of.type_url);
    let asked_for = |of: &TypeUrl| is_meant(of).then(|| of.clone());
    let asked_for =
        || admin.relay.sessions().find_map(|of| of.types.iter().find_map(|of| asked_for(&of.type_url)));
    let found = known.iter().chain(held()).find(|of| is_meant(of)).cloned();
    if let Some(found) = found.or_else(asked_for) {
        return Ok(found);
    }
    let likeness = |type_url: &TypeUrl| {
        [type_url.short(), type_url.message(), type_url.as_str()]
            .map(|name| strsim::jaro_winkler(&name.to_lowercase(), &text.to_lowercase()))
            .into_iter()
            .fold(0.0, f64::max)
    };
    let mut near: Vec<_> = known.iter().chain(held()).map(|of| (likeness(of), of.short())).collect();
    near.retain(|(likeness, _)| *likeness >= NEAR_MIN);
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.dedup_by_key(|(_, name)| *name);
    let near: Vec<_> = near.iter().take(NEAR_MAX).map(|(_, name)| *name).collect();
    Err(match near.is_empty() {
        true => format!("unknown type {text:?}"),
        false => format!("unknown type {text:?}; similar types: {}", near.join(", ")),
    })
}
