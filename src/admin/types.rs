//! The check that a requested type exists, so that a typing error does not look like an empty list.

use std::collections::BTreeSet;

use super::state::Admin;
use super::unknown::search;
use crate::driver::api::status::names_type;
use sluice_text::nearest::Near;
use sluice_xds::TypeUrl;

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
    if let Some(type_url) = TypeUrl::known().find(|type_url| names_type(text, type_url)) {
        return Ok(type_url);
    }
    let (relay, name) = (admin.relay.clone(), text.to_owned());
    // A walk over all clients, for a type that has neither a rule nor a source.
    let search = search(move || {
        let is_meant = |type_url: &TypeUrl| names_type(&name, type_url).then(|| type_url.clone());
        let sources = relay.sources();
        let held = sources.iter().flat_map(|source| &source.types).map(|status| status.type_url.clone());
        // Many sources have the same few types.
        let held: BTreeSet<TypeUrl> = held.collect();
        let asked_for = || {
            relay
                .sessions()
                .find_map(|session| session.types.iter().find_map(|status| is_meant(&status.type_url)))
        };
        let similar = || similar(&name, TypeUrl::known().chain(held.iter().cloned()));
        held.iter().find_map(is_meant).or_else(asked_for).ok_or_else(similar)
    });
    let near = match search.await {
        Some(Ok(type_url)) => return Ok(type_url),
        Some(Err(near)) => near,
        None => Vec::new(),
    };
    Err(match near.is_empty() {
        true => format!("unknown type {text:?}"),
        false => format!("unknown type {text:?}; similar types: {}", near.join(", ")),
    })
}

/// The types whose names are near.
fn similar(text: &str, types: impl Iterator<Item = TypeUrl>) -> Vec<String> {
    let mut search = Near::new(text);
    let mut likeness = |type_url: &TypeUrl| {
        let names = [type_url.short(), type_url.message(), type_url.as_str()];
        names.into_iter().filter_map(|name| search.likeness(name)).max_by(f64::total_cmp)
    };
    let mut near: Vec<_> =
        types.filter_map(|type_url| Some((likeness(&type_url)?, type_url.short().to_owned()))).collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.dedup_by(|(_, a), (_, b)| a == b);
    near.into_iter().take(NEAR_MAX).map(|(_, name)| name).collect()
}
