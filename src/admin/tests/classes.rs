//! The node class of all clients.

use super::*;

pub(super) fn class_choice() -> ClassChoice {
    let near = NearMiss {
        id: RuleId { entry: 0, is_default: false },
        field: "id".to_owned(),
        condition: "envoy-*".to_owned(),
        value: Some("\u{1b}[31m".to_owned()),
    };
    let rule = RuleText {
        id: RuleId { entry: 1, is_default: true },
        matches: "names=old".to_owned(),
        splits: "cluster=\"edge\"".to_owned(),
        nearest: Some(near),
        not_reached: Vec::new(),
    };
    ClassChoice { digest: Some("c0ffee".into()), rule: Some(rule), split: None, generation: 2 }
}
