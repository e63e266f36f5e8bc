//! Views and their differences.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::collection::CollectionKind;
use sluice_xds::{Any, Code};

fn resource(name: &str, version: u128) -> Resource {
    Resource {
        name: name.into(),
        version: Version(version),
        body: Any { type_url: Arc::from("t"), value: Bytes::new() },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    }
}

fn view(members: &[(&str, u128)]) -> View {
    let mut view = View::unknown(members.len());
    for (name, version) in members {
        view.put(None, &resource(name, *version));
    }
    view
}

fn names(list: &[&str]) -> Vec<ResourceName> {
    list.iter().map(|n| ResourceName::new(n)).collect()
}

#[test]
fn the_digest_follows_the_content() {
    let mut changed = view(&[("a", 1), ("b", 2)]);
    assert!(changed.is_complete());
    changed.put(Some(&resource("a", 1)), &resource("a", 5));
    assert_eq!(changed.digest(), Version(7));
    changed.put_absent(&"b".into(), Some(&resource("b", 2)));
    assert_eq!((changed.digest(), changed.absent_len()), (Version(5), 1));
    assert_eq!(changed.bytes(), resource("a", 5).size());
}

#[test]
fn rly_5_nam_16_only_a_known_membership_excludes_a_name() {
    let (name, glob) = ("xdstp://a/t/g/x".into(), "xdstp://a/t/g/*".into());
    let excluding = |view: &View| CollectionKind::ALL.map(|kind| view.excludes(kind, &name));
    let ruling_out = |view: &View| CollectionKind::ALL.map(|kind| view.rules_out(kind, &name));
    let mut view = View::unknown(2);
    assert_eq!((excluding(&view), ruling_out(&view)), ([false; 3], [false; 3]));
    view.resolve_glob(&glob);
    assert_eq!(excluding(&view), [false, true, false], "in the order of wildcard, globs, names");
    view.complete();
    assert_eq!(excluding(&view), [true, true, false]);
    let mut view = View::unknown(2);
    view.put_absent(&name, None);
    assert_eq!((excluding(&view)[2], ruling_out(&view)[2]), (false, true), "absence is no membership");
}

#[test]
fn rly_2_only_known_absence_is_a_removal_of_a_name() {
    let from = view(&[("a", 1), ("b", 2)]);
    let mut to = view(&[("b", 3)]);
    assert_eq!(
        difference(&from, &to, CollectionKind::Names),
        Difference { put: names(&["b"]), gone: vec![] }
    );
    to.put_absent(&"a".into(), None);
    assert_eq!(difference(&from, &to, CollectionKind::Names).gone, names(&["a"]));
    assert!(difference(&to, &to.clone(), CollectionKind::Names).is_empty());
}

#[test]
fn rly_6_a_wildcard_removes_nothing_before_its_membership_is_known() {
    let from = view(&[("a", 1), ("b", 2)]);
    let mut to = View::unknown(1);
    assert!(difference(&from, &to, CollectionKind::Wildcard).is_empty());
    to.complete();
    assert_eq!(difference(&from, &to, CollectionKind::Wildcard).gone, names(&["a", "b"]));
}

#[test]
fn rly_36_content_that_came_back_is_no_difference() {
    let from = view(&[("a", 1)]);
    let mut to = from.clone();
    to.put(Some(&resource("a", 1)), &resource("a", 2));
    to.put(Some(&resource("a", 2)), &resource("a", 1));
    assert!(difference(&from, &to, CollectionKind::Names).is_empty());
}

#[test]
fn a_forgotten_name_is_sent_again_and_alike_for_all() {
    let to = view(&[("a", 1), ("b", 2)]);
    let (mut one, mut other) = (Arc::new(to.clone()), Arc::new(to.clone()));
    View::forget(&mut one, &"a".into());
    View::forget(&mut other, &"a".into());
    assert_eq!(one.id(), other.id());
    assert_ne!(one.id(), to.id());
    assert_eq!(difference(&one, &to, CollectionKind::Names).put, names(&["a"]));
    View::forget(&mut one, &"zzz".into());
    assert_eq!(one.id(), other.id());
}

#[test]
fn adm_7_the_version_of_a_name_that_is_due_again_stays_known() {
    let (a, b) = ("a".into(), "b".into());
    let to = Arc::new(view(&[("a", 1), ("b", 2), ("c", 3)]));
    let mut held = to.clone();
    View::force(&mut held, &a);
    View::forget(&mut held, &b);
    let versions = |held: &View| [&a, &b].map(|name| held.known_version_of(name));
    assert_eq!(versions(&held), [Some(Version(1)), Some(Version(2))]);
    assert!(held.is_due_again(&a) && held.is_due_again(&b));
    assert_eq!(held.known_digest(), to.digest());
    // Other content, and due once more.
    Arc::make_mut(&mut held).hold([(&a, Version(7))].into_iter(), std::iter::empty());
    View::force(&mut held, &a);
    View::forget_all(&mut held);
    assert_eq!(versions(&held), [Some(Version(7)), Some(Version(2))]);
    assert_eq!(held.known_digest(), Version(12));
    // A name that was given up is unknown content when it comes again.
    Arc::make_mut(&mut held).let_go(&a);
    Arc::make_mut(&mut held).hold([(&a, Version::default())].into_iter(), std::iter::empty());
    assert_eq!(held.known_version_of(&a), Some(Version::default()));
    assert_eq!(versions(&to), [Some(Version(1)), Some(Version(2))]);
}

#[test]
fn err_3_a_resource_ends_the_error_of_its_name_while_other_errors_are_still_to_be_told() {
    let error = |text: &str| Arc::new(Status::new(Code::Unavailable, text));
    let mut before = View::unknown(2);
    before.set_error(&"a".into(), Some(&error("of a")));
    before.set_error(&"b".into(), Some(&error("of b")));
    let mut now = before.clone();
    now.set_error(&"a".into(), None);
    now.put(None, &resource("a", 1));
    now.set_error(&"b".into(), Some(&error("another one of b")));
    now.without_errors_since(&before);
    let errors: Vec<_> =
        now.annotations().errors().map(|(name, error)| (name.as_str(), &*error.message)).collect();
    assert_eq!(errors, [("b", "of b")]);
}
