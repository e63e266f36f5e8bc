//! The check that a requested type exists, so that a typing error does not look like an empty list.

use super::state::Admin;
use crate::driver::api::status::names_type;
use crate::text::nearest::Near;
use crate::xds::TypeUrl;

/// The number of suggested types.
const NEAR_MAX: usize = 3;

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
    let mut search = Near::new(text);
    let mut likeness = |type_url: &TypeUrl| {
        let names = [type_url.short(), type_url.message(), type_url.as_str()];
        names.into_iter().filter_map(|name| search.likeness(name)).max_by(f64::total_cmp)
    };
    let near = known.iter().chain(held());
    let mut near: Vec<_> = near.filter_map(|of| Some((likeness(of)?, of.short()))).collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.dedup_by_key(|(_, name)| *name);
    let near: Vec<_> = near.iter().take(NEAR_MAX).map(|(_, name)| *name).collect();
    Err(match near.is_empty() {
        true => format!("unknown type {text:?}"),
        false => format!("unknown type {text:?}; similar types: {}", near.join(", ")),
    })
}
