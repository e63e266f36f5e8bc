//! The difference between two states of a directory, as text for the log.

use std::collections::{BTreeMap, BTreeSet};

use super::FileState;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The maximum number of names in a log line. The line gives the number of further ones.
const NAMES_MAX: usize = 3;

/// The resources that were added, changed or deleted: `RouteConfiguration main, Cluster a`.
pub(super) fn summary(before: &FileState, after: &FileState) -> String {
    let (before, after) = (versions(before), versions(after));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed: Vec<_> = keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).collect();
    let names = changed.iter().take(NAMES_MAX).map(|(type_url, name)| format!("{} {name}", type_url.short()));
    let text = names.collect::<Vec<_>>().join(", ");
    match changed.len().saturating_sub(NAMES_MAX) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn versions(state: &FileState) -> BTreeMap<(&TypeUrl, &ResourceName), Version> {
    let of_type = state.iter().flat_map(|(type_url, resources)| {
        resources.iter().map(move |resource| ((type_url, &resource.name), resource.version))
    });
    of_type.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_json::parse_json;

    fn state(clusters: &[(&str, &str)]) -> FileState {
        let texts = clusters.iter().map(|(name, stat)| {
            format!(
                r#"{{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "{name}", "altStatName": "{stat}"}}"#
            )
        });
        let text = format!(r#"{{"resources": [{}]}}"#, texts.collect::<Vec<_>>().join(","));
        let Ok(response) = parse_json(&text) else { return Vec::new() };
        let resources = response.resources.into_iter().filter_map(|element| element.ok()?.resource);
        vec![(response.type_url, resources.collect())]
    }

    #[test]
    fn a_summary_names_added_changed_and_deleted_resources() {
        let before = state(&[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(
            summary(&before, &state(&[("a", "1"), ("b", "2"), ("d", "1")])),
            "Cluster b, Cluster c, Cluster d"
        );
        assert_eq!(summary(&before, &Vec::new()), "Cluster a, Cluster b, Cluster c");
        assert_eq!(summary(&before, &before), "");
    }

    #[test]
    fn a_summary_is_short() {
        let names = ["a", "b", "c", "d", "e"].map(|name| (name, "1"));
        assert_eq!(summary(&Vec::new(), &state(&names)), "Cluster a, Cluster b, Cluster c and 2 more");
    }
}
