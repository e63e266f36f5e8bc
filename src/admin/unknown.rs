//! The name nearest to one that nobody knows.

use super::list::ITEMS_PER_TURN;
use super::state::Admin;
use crate::driver::api::status::{ResourceFilter, ResourceStatus};
use crate::text::nearest::Near;

/// The names that one search looks at.
const NAMES_MAX: usize = 100_000;

/// The name nearest to another among those of a type that pass, if one is near, and the number of names.
pub(super) async fn nearest_name(
    admin: &Admin,
    type_name: &str,
    name: &str,
    passes: fn(&ResourceStatus) -> bool,
) -> (Option<String>, usize) {
    let filter = ResourceFilter { type_name: Some(type_name.to_owned()), ..ResourceFilter::default() };
    let (mut near, mut best, mut count) = (Near::new(name), None::<(f64, String)>, 0);
    for found in admin.relay.resources(&filter).filter(passes).take(NAMES_MAX) {
        let found = found.name.as_str();
        if let Some(likeness) = near.likeness(found)
            && best.as_ref().is_none_or(|(of_best, _)| likeness > *of_best)
        {
            best = Some((likeness, found.to_owned()));
        }
        count += 1;
        if count % ITEMS_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    (best.map(|(_, name)| name), count)
}
