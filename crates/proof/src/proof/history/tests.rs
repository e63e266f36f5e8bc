use super::*;
use crate::proof::tests::bench::{at_ms, clusters, endpoints, named, wildcard};

const WINDOW: Duration = Duration::from_secs(60);

fn key(name: &str) -> NameKey {
    NameKey { type_url: clusters(), kind: CollectionKind::Wildcard, name: name.into() }
}

#[test]
fn prf_12_the_versions_of_the_window_are_noted_and_older_ones_forgotten() {
    let mut history = History::default();
    let contents: Vec<Content> = (1..=3).map(|version| wildcard(&clusters(), &[("a", version)])).collect();
    assert!(history.note(&contents[0], &contents[1], at_ms(0), WINDOW));
    assert!(history.note(&contents[1], &contents[2], at_ms(50_000), WINDOW));
    let has = |history: &History, version, ms| {
        history.has_had(&key("a"), Some(Version(version)), at_ms(ms), WINDOW)
    };
    assert!(has(&history, 1, 60_000) && !has(&history, 1, 60_001), "replaced more than a window ago");
    assert!(has(&history, 2, 60_001) && !has(&history, 3, 50_000), "the present version is not noted");
    assert_eq!(history.changed_at(&key("a")), Some(at_ms(50_000)));
    assert!(!history.note(&contents[2], &contents[2], at_ms(50_001), WINDOW));
}

#[test]
fn prf_12_absence_is_noted_like_a_version() {
    let mut history = History::default();
    history.note(&wildcard(&clusters(), &[]), &wildcard(&clusters(), &[("a", 1)]), at_ms(0), WINDOW);
    assert!(history.has_had(&key("a"), None, at_ms(1), WINDOW));
    let (old, new) = (named(&endpoints(), &[("e", Some(1))]), named(&endpoints(), &[("e", None)]));
    history.note(&old, &new, at_ms(1), WINDOW);
    let name = NameKey { type_url: endpoints(), kind: CollectionKind::Names, name: "e".into() };
    assert!(history.has_had(&name, Some(Version(1)), at_ms(2), WINDOW));
}

#[test]
fn prf_12_sides_seconds_apart_share_versions_whatever_the_rate() {
    let (mut ahead, mut behind) = (History::default(), History::default());
    let content = |step: u128| {
        wildcard(&clusters(), &[("a", step.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))])
    };
    for step in 0..5_000u32 {
        let now = at_ms(u64::from(step));
        ahead.note(&content(step.into()), &content(u128::from(step) + 1), now, WINDOW);
        if let Some(step) = step.checked_sub(3_000) {
            behind.note(&content(step.into()), &content(u128::from(step) + 1), now, WINDOW);
        }
    }
    assert!(ahead.shares(&behind, &key("a"), at_ms(5_000), WINDOW));
    assert_eq!(ahead.count(&key("a"), at_ms(5_000), WINDOW), NOTED);
}

#[test]
fn prf_12_a_side_with_too_many_changes_is_blind_for_a_window() {
    let mut history = History::default();
    let names: Vec<String> = (0..=NAMES_MAX).map(|number| number.to_string()).collect();
    let members: Vec<(&str, u128)> = names.iter().map(|name| (&**name, 1)).collect();
    history.note(&wildcard(&clusters(), &[]), &wildcard(&clusters(), &members), at_ms(0), WINDOW);
    assert!(history.is_blind(at_ms(59_999)) && !history.is_blind(at_ms(60_000)));
    assert!(history.notes.is_empty());
}
