//! The check that a requested type exists, so that a typing error does not look like an empty list.

use std::collections::BTreeSet;

use super::state::Admin;
use super::unknown::search;
use crate::driver::api::status::names_type;
use crate::text::nearest::Near;
use crate::xds::TypeUrl;

/// The number of suggested types.
const NEAR_MAX: usize = 3;

/// Fails, with suggestions, for a type that neither xDS nor any client or source has.
pub(super) async fn check(admin: &Admin, text: Option<&str>) -> Result<(), String> {
    match text {
        Some(text) => resolve(admin, text).await.map(drop),
        None => Ok(()),
    }
}

/// The type with a name.
pub(super) async fn resolve(admin: &Admin, text: &str) -> Result<TypeUrl, String> {
    if let Some(found) = TypeUrl::known().find(|of| names_type(text, of)) {
        return Ok(found);
    }
    let (relay, wanted) = (admin.relay.clone(), text.to_owned());
    // A walk over all clients, for a type that has neither a rule nor a source.
    let found = search(move || {
        let is_meant = |of: &TypeUrl| names_type(&wanted, of).then(|| of.clone());
        let sources = relay.sources();
        let held = sources.iter().flat_map(|source| &source.types).map(|of| of.type_url.clone());
        // Many sources have the same few types.
        let held: BTreeSet<TypeUrl> = held.collect();
        let asked_for =
            || relay.sessions().find_map(|of| of.types.iter().find_map(|of| is_meant(&of.type_url)));
        let similar = || similar(&wanted, TypeUrl::known().chain(held.iter().cloned()));
        held.iter().find_map(is_meant).or_else(asked_for).ok_or_else(similar)
    });
    let near = match found.await {
        Some(Ok(found)) => return Ok(found),
        Some(Err(near)) => near,
        None => Vec::new(),
    };
    Err(match near.is_empty() {
        true => format!("unknown type {text:?}"),
        false => format!("unknown type {text:?}; similar types: {}", near.join(", ")),
    })
}

/// The types whose names are near.
fn similar(text: &str, known: impl Iterator<Item = TypeUrl>) -> Vec<String> {
    let mut search = Near::new(text);
    let mut likeness = |type_url: &TypeUrl| {
        let names = [type_url.short(), type_url.message(), type_url.as_str()];
        names.into_iter().filter_map(|name| search.likeness(name)).max_by(f64::total_cmp)
    };
    let mut near: Vec<_> = known.filter_map(|of| Some((likeness(&of)?, of.short().to_owned()))).collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.dedup_by(|(_, a), (_, b)| a == b);
    near.into_iter().take(NEAR_MAX).map(|(_, name)| name).collect()
}
