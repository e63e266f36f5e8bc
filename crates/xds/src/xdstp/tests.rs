use proptest::prelude::*;

use super::*;

const T: &str = "envoy.config.cluster.v3.Cluster";

fn parse(rest: &str) -> Result<Xdstp, NameError> {
    Xdstp::parse(&format!("xdstp://{rest}"))
}

fn same(one: &str, other: &str) -> bool {
    canonical(one) == canonical(other)
}

#[test]
fn nam_1_a_name_has_its_parts() {
    let name = parse(&format!("a/{T}/x/y/z?m=1")).unwrap();
    assert_eq!((name.authority.as_str(), name.resource_type.as_str(), name.id.as_str()), ("a", T, "x/y/z"));
    assert_eq!(name.context, [("m".to_owned(), "1".to_owned())]);
    for (bad, error) in [
        ("xdstp:a/T/x", NameError::NoAuthority),
        ("xdstp:/T/x", NameError::NoAuthority),
        ("xdstp://a", NameError::NoType),
        ("xdstp://a/", NameError::NoType),
        ("xdstp://a//x", NameError::NoType),
        ("xdstp://a/T", NameError::NoId),
        ("xdstp://a/T/", NameError::NoId),
        ("xdstp://a/T?x=1", NameError::NoId),
        ("xdstp://a/T/%", NameError::BadEscape),
        ("xdstp://a/T/%4", NameError::BadEscape),
        ("xdstp://a/T/%+4", NameError::BadEscape),
        ("xdstp://a/T/%ff", NameError::NotUtf8),
        ("xdstp://a/T/x?=1", NameError::NoKey),
    ] {
        assert_eq!(canonical(bad), Err(error), "{bad}");
    }
}

#[test]
fn nam_2_directives_are_no_part_of_a_name() {
    assert_eq!(canonical("xdstp://a/T/x?k=v#alt=xdstp://b/T/y,entry=z").unwrap(), "xdstp://a/T/x?k=v");
}

#[test]
fn nam_3_old_style_names_are_opaque() {
    for name in ["a%zz?b=2&a=1#x", "xdstp", "", "//a/T/x", "Xdstp://a/T/x?b=2&a=1"] {
        assert_eq!(canonical(name).unwrap(), name);
    }
}

#[test]
fn nam_4_an_empty_authority_is_an_authority() {
    let name = parse("/T/x").unwrap();
    assert_eq!((name.authority.as_str(), name.id.as_str()), ("", "x"));
    assert!(!same("xdstp:///T/x", "T/x"));
}

#[test]
fn nam_5_a_name_is_of_the_type_of_its_request() {
    assert!(canonical_of_type("xdstp://a/T/x", "T").is_ok());
    let error = canonical_of_type("xdstp://a/T/x", "U").unwrap_err();
    assert_eq!(error.to_string(), "the name has type T, but the request is for U");
    assert_eq!(canonical_of_type("old", "U").unwrap(), "old");
}

#[test]
fn nam_6_equal_names_have_one_key() {
    assert!(same("xdstp://a/T/x?a=1&b=2", "xdstp://a/T/x?b=2&a=1"));
    assert!(same("xdstp://a/T/%78/y", "xdstp://a/T/x/y"));
    assert!(same("xdstp://%61/T/x", "xdstp://a/T/x"));
    assert!(same("xdstp://a/T/x?k", "xdstp://a/T/x?k="));
    assert!(same("xdstp://a/T/x?", "xdstp://a/T/x"));
    assert!(same("xdstp://a/T/x?%6b=%76", "xdstp://a/T/x?k=v"));
    assert!(!same("xdstp://a/T/x?a=1", "xdstp://a/T/x?a=2"));
    assert!(!same("xdstp://a/T/x?a=1", "xdstp://a/T/x"));
    assert!(!same("xdstp://a/T/x%3Fa=1", "xdstp://a/T/x?a=1"));
    assert!(!same("xdstp://a/T/x?a=1%26b=2", "xdstp://a/T/x?a=1&b=2"));
}

/// RFC 3986, 2.2: an escape of a reserved character is not the character.
#[test]
fn nam_6_an_escape_of_a_reserved_character_stays() {
    let id = |id: &str| canonical(&format!("xdstp://a/T/{id}")).unwrap().into_owned();
    assert_eq!(id("x%2fy"), "xdstp://a/T/x%2Fy");
    for reserved in ":/@!$&'()*+,;=".chars() {
        let (escape, raw) = (format!("x%{:02X}y", u32::from(reserved)), format!("x{reserved}y"));
        assert_eq!(id(&escape), format!("xdstp://a/T/{escape}"));
        assert_eq!(id(&raw), format!("xdstp://a/T/{raw}"));
        assert_eq!(id(&format!("x?k={escape}")), format!("xdstp://a/T/x?k={escape}"));
        assert!(!same(&format!("xdstp://{escape}/T/x"), &format!("xdstp://{raw}/T/x")));
    }
    // One segment, in the glob of its directory.
    assert_eq!(glob_of("xdstp://a/T/d/x%2Fy").as_deref(), Some("xdstp://a/T/d/*"));
    assert!(!is_glob("xdstp://a/T/d/%2A"));
}

#[test]
fn fed_3_an_authority_of_the_configuration_is_spelled_as_in_names() {
    for (configured, spelled) in
        [("a", "a"), ("[::1]:80/x", "[::1]:80%2Fx"), ("%61%3ab", "a%3Ab"), ("5%", "5%25")]
    {
        assert_eq!(spell_authority(configured), spelled);
    }
}

#[test]
fn nam_7_only_what_must_be_is_encoded() {
    let canonical = |name| canonical(name).unwrap().into_owned();
    assert_eq!(canonical("xdstp://a/T/0.0.0.0:8080"), "xdstp://a/T/0.0.0.0:8080");
    assert_eq!(canonical("xdstp://a/T/0.0.0.0%3a8080"), "xdstp://a/T/0.0.0.0%3A8080");
    assert_eq!(canonical("xdstp://a/T/a b%25%23[ü]"), "xdstp://a/T/a%20b%25%23%5B%C3%BC%5D");
    assert_eq!(canonical("xdstp://a/T/x?k%3d=%26&a=%5b?/"), "xdstp://a/T/x?a=%5B?/&k%3D=%26");
    assert_eq!(canonical("xdstp://[::1]:80%2f/T%2fU/x"), "xdstp://[::1]:80%2F/T%2FU/x");
}

#[test]
fn nam_9_a_name_with_a_key_twice_equals_none_but_itself() {
    for name in ["xdstp://a/T/x?b=2&a=1&b=1", "xdstp://a/T/x?b=1&a=1&b=2", "xdstp://a/T/x?b=1&%62=1"] {
        assert_eq!(canonical(name).unwrap(), name);
    }
}

#[test]
fn nam_10_reserved_parameters_count_like_others() {
    assert!(!same("xdstp://a/T/x?xds.resource.vip=1.2.3.4", "xdstp://a/T/x?xds.resource.vip=1.2.3.5"));
    assert!(!same("xdstp://a/T/x?xds.resource.vip=1.2.3.4", "xdstp://a/T/x"));
}

#[test]
fn nam_14_a_member_is_one_level_below_its_glob_with_the_same_context() {
    for (member, glob) in [
        ("xdstp://a/T/foo/a", Some("xdstp://a/T/foo/*")),
        ("xdstp://a/T/foo/a/b", Some("xdstp://a/T/foo/a/*")),
        ("xdstp://a/T/a?k=/v/x&l=*", Some("xdstp://a/T/*?k=/v/x&l=*")),
        ("xdstp:///T/a", Some("xdstp:///T/*")),
        ("xdstp://a/T/foo/*", None),
        ("xdstp://a/T", None),
        ("foo/a", None),
    ] {
        assert_eq!(glob_of(member).as_deref(), glob, "{member}");
        assert!(glob.is_none_or(is_glob), "{glob:?}");
        assert!(!is_glob(member) || glob.is_none());
    }
    for name in ["xdstp://a/T/foo", "xdstp://a/T/foo*", "xdstp://a/T/*/a", "xdstp://a/T/a?k=/*", "*", "a/*"] {
        assert!(!is_glob(name), "{name}");
    }
    assert!(is_glob("xdstp://a/T/*?k=v"));
}

#[test]
fn nam_8_members_are_spelled_as_their_glob_was() {
    let spelled = member_as("xdstp://a/T/f%6fo/*?b=2&a=1", "xdstp://a/T/foo/x?a=1&b=2");
    assert_eq!(spelled.as_deref(), Some("xdstp://a/T/f%6fo/x?b=2&a=1"));
    let directed = member_as("xdstp://a/T/foo/*?b=2&a=1#entry=z", "xdstp://a/T/foo/x%2Fy?a=1&b=2");
    assert_eq!(directed.as_deref(), Some("xdstp://a/T/foo/x%2Fy?b=2&a=1"));
}

/// A part of a name in the canonical spelling: unreserved characters, delimiters, and escapes.
fn text() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "a", "b", "c", "~", ":", "*", "%2F", "%3F", "%23", "%25", "%26", "%3D", "%3A", "%2A", "%20",
        "%C3%BC", "%01",
    ];
    proptest::collection::vec(proptest::sample::select(PIECES), 1..6).prop_map(|pieces| pieces.concat())
}

/// Several segments.
fn id() -> impl Strategy<Value = String> {
    proptest::collection::vec(text(), 1..3).prop_map(|segments| segments.join("/"))
}

/// Another spelling of a canonical part. The coins escape unreserved characters, write characters that no URI
/// contains, and choose the case of digits.
fn spell(text: &str, coins: &[bool]) -> String {
    let mut spelled = String::new();
    let mut rest = text;
    let mut turn = 0;
    while let Some(first) = rest.chars().next() {
        turn += 1;
        let coin = coins[turn % coins.len()];
        let raw = [("%20", " "), ("%C3%BC", "ü"), ("%01", "\u{1}")]
            .into_iter()
            .find(|(escape, _)| rest.starts_with(escape));
        let (length, piece) = match (first, raw) {
            (_, Some((escape, raw))) if coin => (escape.len(), raw.to_owned()),
            ('%', _) => (3, if coin { rest[..3].to_lowercase() } else { rest[..3].to_owned() }),
            ('a'..='c' | '~', _) if coin => (1, format!("%{:02x}", u32::from(first))),
            _ => (1, first.to_string()),
        };
        spelled.push_str(&piece);
        rest = &rest[length..];
    }
    spelled
}

fn name_of(parts: &Xdstp, coins: &[bool]) -> String {
    let context =
        parts.context.iter().map(|(key, value)| format!("{}={}", spell(key, coins), spell(value, coins)));
    let context: Vec<_> = context.collect();
    format!(
        "xdstp://{}/{}/{}?{}",
        spell(&parts.authority, coins),
        spell(&parts.resource_type, coins),
        spell(&parts.id, coins),
        context.join("&")
    )
}

fn names() -> impl Strategy<Value = Xdstp> {
    let context = proptest::collection::btree_map(text(), text(), 0..4);
    (text(), text(), id(), context).prop_map(|(authority, resource_type, id, context)| Xdstp {
        authority,
        resource_type,
        id,
        context: context.into_iter().collect(),
    })
}

proptest! {
    /// NAM-6 and NAM-7: the canonical spelling is one for all spellings, reads back as the same parts, and is
    /// its own.
    #[test]
    fn nam_7_the_canonical_spelling_is_one_and_keeps_what_it_says(
        parts in names(),
        coins in proptest::collection::vec(any::<bool>(), 1..9),
        turn in 0..4_usize,
    ) {
        let mut turned = parts.clone();
        if !turned.context.is_empty() {
            let by = turn % turned.context.len();
            turned.context.rotate_left(by);
        }
        let spelled = name_of(&turned, &coins);
        let canonical_name = canonical(&spelled).unwrap().into_owned();
        prop_assert_eq!(&Xdstp::parse(&spelled).unwrap(), &parts);
        prop_assert_eq!(&Xdstp::parse(&canonical_name).unwrap(), &parts);
        prop_assert_eq!(&canonical_name, &parts.to_string());
        prop_assert_eq!(canonical(&canonical_name).unwrap(), canonical_name.as_str());
        let is_clean = canonical_name.is_ascii() && !canonical_name.contains(['#', ' ', '\u{1}']);
        prop_assert!(is_clean);
    }

    #[test]
    fn nam_6_different_names_have_different_keys(one in names(), other in names()) {
        prop_assert_eq!(one == other, one.to_string() == other.to_string());
    }

    /// No text makes the parser fail otherwise than by an error.
    #[test]
    fn nam_1_any_text_is_a_name_or_an_error(rest in ".{0,40}") {
        let name = format!("xdstp:{rest}");
        if let Ok(key) = canonical(&name) {
            prop_assert_eq!(canonical(&key).unwrap(), key.as_ref());
            let _ = (is_glob(&key), glob_of(&key), member_as(&name, &key));
        }
    }
}
