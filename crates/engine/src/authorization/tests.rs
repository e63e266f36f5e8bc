//! Patterns, decisions and grants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use super::identity::PatternPart;
use super::*;
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{Locality, Node, ResourceName, TypeUrl, Value};

const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const CDS: &str = "envoy.config.cluster.v3.Cluster";

fn spiffe(text: &str) -> Arc<Identity> {
    Arc::new(Identity::Spiffe(SpiffeId::parse(text).unwrap()))
}

fn web(namespace: &str) -> Arc<Identity> {
    spiffe(&format!("spiffe://prod.example/ns/{namespace}/sa/web"))
}

fn claimant(identity: &Arc<Identity>) -> Claimant<'_> {
    Claimant { listener: "mesh", identity, is_local: false }
}

fn url(message: &str) -> TypeUrl {
    TypeUrl::of_message(message)
}

fn captures() -> Vec<String> {
    vec!["ns".into(), "sa".into()]
}

fn template(text: &str) -> Template {
    Template::parse(text, &captures()).unwrap()
}

fn named(how: Match, text: &str) -> NamePattern {
    NamePattern { how, text: template(text) }
}

fn all() -> Allow {
    Allow { types: Types::All, names: None, authorities: None, wildcard: true }
}

fn rule(name: &str, identity: IdentityPattern, verdict: RuleVerdict) -> Rule {
    Rule { name: name.into(), listeners: Vec::new(), identity, node: Vec::new(), verdict }
}

/// The example of the documentation.
fn sidecars() -> Rule {
    let identity = IdentityPattern::spiffe("spiffe://prod.example/ns/{ns}/sa/{sa}").unwrap();
    let secrets = Allow {
        types: Types::Listed(vec![url(SECRET)]),
        names: Some(vec![named(Match::Prefix, "kubernetes://{ns}/")]),
        authorities: None,
        wildcard: false,
    };
    let text = |field, how, text| NodeCondition { field, condition: Condition::Text(how, template(text)) };
    Rule {
        node: vec![
            text(Field::Id, Match::Prefix, "{sa}."),
            text(Field::Metadata(vec!["NAMESPACE".into()]), Match::Exact, "{ns}"),
        ],
        ..rule("sidecars", identity, RuleVerdict::Allow(vec![all(), secrets]))
    }
}

fn node(id: &str, namespace: &str) -> Node {
    let metadata = [("NAMESPACE".to_owned(), Value::String(namespace.into()))].into();
    Node { id: id.into(), metadata, ..Node::default() }
}

fn decide(policy: &Policy, identity: &Arc<Identity>, node: Option<&Node>) -> Result<Arc<Grant>, String> {
    let decision = policy.decide(claimant(identity), node);
    match decision.denial {
        Some(denial) => {
            assert!(decision.grant.of_type(&url(CDS)).is_err(), "a denied stream has a grant of nothing");
            Err(denial.status(identity).message.to_string())
        }
        None => Ok(decision.grant),
    }
}

fn allows(grant: &Grant, message: &str, name: &str) -> bool {
    grant.of_type(&url(message)).is_ok_and(|of_type| of_type.allows(&ResourceName::new(name)))
}

#[test]
fn aut_3_a_capture_takes_exactly_one_segment() {
    let pattern = IdentityPattern::spiffe("spiffe://prod.example/ns/{ns}/sa/{sa}").unwrap();
    let captured = |text: &str| pattern.matches(&spiffe(text)).map(|captures| captures.to_vec());
    assert_eq!(captured("spiffe://prod.example/ns/shop/sa/web"), Some(vec!["shop".into(), "web".into()]));
    for other in [
        "spiffe://prod.example/ns/shop/sa",
        "spiffe://prod.example/ns/shop/x/sa/web",
        "spiffe://prod.example/ns/shop/sa/web/x",
        "spiffe://test.example/ns/shop/sa/web",
        "spiffe://prod.example/NS/shop/sa/web",
    ] {
        assert_eq!(captured(other), None, "{other}");
    }
    let dns = IdentityPattern::dns("{ns}.Mesh.example").unwrap();
    let captured = |name: &str| dns.matches(&Identity::Dns(name.into())).map(|captures| captures.to_vec());
    assert_eq!(captured("shop.mesh.example"), Some(vec!["shop".into()]));
    assert_eq!(captured("a.shop.mesh.example"), None);
    assert_eq!(captured("mesh.example"), None);
    assert_eq!(dns.matches(&spiffe("spiffe://shop.mesh.example/a")), None, "kinds do not mix (IDN-4)");
}

/// AUT-3: over many random identities and patterns, a capture never has a separator, and the captured texts
/// put into the pattern make the identity again.
#[test]
fn aut_3_property_captures_put_back_make_the_identity() {
    let words = ["a", "b", "ns", "a.b", "a-b", "_"];
    let mut state = 3_u64;
    let mut matched = 0;
    let rounds = if std::env::var_os("PROPTEST_CASES").is_some() { 20_000 } else { 5_000 };
    for _ in 0..rounds {
        let mut segment = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            words[(state >> 33) as usize % words.len()].to_owned()
        };
        let id: Vec<String> = (0..3).map(|_| segment()).collect();
        let mut pattern: Vec<String> = (0..3)
            .map(|at| if segment().len() == 1 { format!("{{c{at}}}") } else { id[at].clone() })
            .collect();
        pattern.extend((segment() == "a").then(|| "{last}".to_owned()));
        let identity = spiffe(&format!("spiffe://d/{}", id.join("/")));
        let parsed = IdentityPattern::spiffe(&format!("spiffe://d/{}", pattern.join("/"))).unwrap();
        let Some(captures) = parsed.matches(&identity) else {
            assert_ne!(pattern.len(), id.len());
            continue;
        };
        matched += 1;
        assert!(captures.iter().all(|capture| !capture.contains('/') && !capture.is_empty()));
        let IdentityPattern::Spiffe { segments, .. } = parsed else { panic!() };
        let mut captures = captures.iter();
        let filled: Vec<_> = segments
            .iter()
            .map(|part| match part {
                PatternPart::Literal(text) => text.to_string(),
                PatternPart::Capture(_) => captures.next().unwrap().to_string(),
            })
            .collect();
        assert_eq!(filled, id);
    }
    assert!(matched > 1_000);
}

#[test]
fn aut_3_faulty_patterns_are_refused() {
    for text in [
        "prod.example/ns/{ns}",
        "spiffe://prod.example",
        "spiffe://prod.example/",
        "spiffe://prod.example/ns/x{ns}",
        "spiffe://prod.example/ns/{}",
        "spiffe://prod.example/ns/{Ns}",
        "spiffe://prod.example/{ns}/{ns}",
        "spiffe://prod.example/ns/../x",
        "spiffe://{td}/ns",
        "spiffe://prod.example/ns/*",
    ] {
        assert!(IdentityPattern::spiffe(text).is_err(), "{text}");
    }
    for text in ["", "a..b", "*.example", "a b", "{a}.{a}"] {
        assert!(IdentityPattern::dns(text).is_err(), "{text}");
    }
}

#[test]
fn aut_3_a_template_is_literal_text() {
    let values: super::template::Captures = ["a.b".into(), "{ns}".into()].into();
    let matches = |how, pattern: &str, text: &str| template(pattern).matches(how, text, &values);
    assert!(matches(Match::Exact, "{ns}/x", "a.b/x"));
    assert!(!matches(Match::Exact, "{ns}/x", "aXb/x"));
    assert!(matches(Match::Prefix, "x-{sa}/", "x-{ns}/rest"));
    assert!(matches(Match::Suffix, ".{ns}.{sa}", "name.a.b.{ns}"));
    assert!(!matches(Match::Suffix, ".{ns}.{sa}", "a.b.{ns}"));
    assert!(matches(Match::Exact, "{{{ns}}}", "{a.b}"));
    assert_eq!(template("x-{sa}/{{").fill(&values), "x-{ns}/{");
    assert_eq!(Template::parse("{pod}", &captures()), Err(TemplateError::Unknown("pod".into())));
    assert_eq!(Template::parse("a}", &captures()), Err(TemplateError::Brace));
    assert!(template("a/{ns}").is_open(Match::Prefix) && !template("a/{ns}").is_open(Match::Suffix));
    assert!(template("{ns}/").is_open(Match::Suffix) && !template("{ns}/").is_open(Match::Exact));
}

#[test]
fn aut_2_the_first_rule_that_matches_decides_and_none_denies() {
    let any = rule("any", IdentityPattern::Any, RuleVerdict::Allow(vec![all()]));
    let quarantined = rule(
        "quarantined",
        IdentityPattern::spiffe("spiffe://prod.example/ns/old/sa/{sa}").unwrap(),
        RuleVerdict::Deny,
    );
    let old = web("old");
    let denied = Err("spiffe://prod.example/ns/old/sa/web has no access here".to_owned());
    let decided = |rules: Vec<Rule>| decide(&Policy::new(Mode::Enforce, rules), &old, None).map(|_| ());
    assert_eq!(decided(vec![quarantined.clone(), any.clone()]), denied);
    assert_eq!(decided(vec![any.clone(), quarantined]), Ok(()));
    assert_eq!(decided(Vec::new()), denied, "the text does not tell a rule that denies from no rule");
    let elsewhere = Rule { listeners: vec!["beside".into()], ..any };
    assert_eq!(decided(vec![elsewhere]), denied);
}

#[test]
fn aut_4_every_condition_must_hold_and_an_empty_field_fails() {
    let policy = Policy::new(Mode::Enforce, vec![sidecars()]);
    let shop = web("shop");
    assert!(decide(&policy, &shop, Some(&node("web.1", "shop"))).is_ok());
    for (node, text) in [
        (
            Some(node("web.1", "cart")),
            "the node's metadata NAMESPACE is \"cart\", which spiffe://prod.example/ns/shop/sa/web may not say",
        ),
        (
            Some(node("web.1", "")),
            "the node has no metadata NAMESPACE, which spiffe://prod.example/ns/shop/sa/web must state",
        ),
        (
            Some(Node { id: "web.1".into(), ..Node::default() }),
            "the node has no metadata NAMESPACE, which spiffe://prod.example/ns/shop/sa/web must state",
        ),
        (
            Some(node("web-evil.1", "shop")),
            "the node's id is \"web-evil.1\", which spiffe://prod.example/ns/shop/sa/web may not say",
        ),
        (None, "the node has no id, which spiffe://prod.example/ns/shop/sa/web must state"),
    ] {
        assert_eq!(decide(&policy, &shop, node.as_ref()).unwrap_err(), text);
    }
}

#[test]
fn aut_4_each_field_and_each_kind_of_condition() {
    let metadata = [
        ("N".to_owned(), Value::Number(1f64.to_bits())),
        ("NULL".to_owned(), Value::Null),
        ("EMPTY".to_owned(), Value::String(String::new())),
        ("L".to_owned(), Value::Struct([("a".to_owned(), Value::Bool(true))].into())),
    ];
    let locality = Locality { region: "eu".into(), zone: "eu-1".into(), sub_zone: String::new() };
    let node = Node {
        cluster: "edge".into(),
        user_agent_name: "envoy".into(),
        locality: Some(locality),
        metadata: metadata.into(),
        ..Node::default()
    };
    let text = |how, text: &str| Condition::Text(how, Template::literal(text));
    let path = |path: &[&str]| Field::Metadata(path.iter().map(|key| (*key).to_owned()).collect());
    for (field, condition, expected) in [
        (Field::Cluster, text(Match::Exact, "edge"), true),
        (Field::Cluster, text(Match::Exact, "edg"), false),
        (Field::UserAgentName, text(Match::Prefix, "env"), true),
        (Field::Region, text(Match::Exact, "eu"), true),
        (Field::Zone, text(Match::Suffix, "-1"), true),
        (Field::SubZone, text(Match::Prefix, ""), false),
        (path(&["N"]), Condition::Equal(Value::Number(1f64.to_bits())), true),
        (path(&["N"]), text(Match::Exact, "1"), false),
        (path(&["N"]), Condition::Present, true),
        (path(&["L", "a"]), Condition::Equal(Value::Bool(true)), true),
        (path(&["L", "b"]), Condition::Present, false),
        (path(&["NULL"]), Condition::Present, false),
        (path(&["NULL"]), Condition::Equal(Value::Null), false),
        (path(&["EMPTY"]), Condition::Present, false),
    ] {
        let condition = NodeCondition { field, condition };
        assert_eq!(condition.check(Some(&node), &Default::default()).is_ok(), expected, "{condition:?}");
        assert!(condition.check(None, &Default::default()).is_err());
    }
}

#[test]
fn aut_7_aut_10_a_grant_has_types_names_authorities_and_the_wildcard() {
    let policy = Policy::new(Mode::Enforce, vec![sidecars()]);
    let grant = decide(&policy, &web("shop"), Some(&node("web.1", "shop"))).unwrap();
    let of_type = |message: &str| grant.of_type(&url(message)).map(|of_type| of_type.allows_wildcard());
    assert_eq!(of_type(CDS), Ok(true));
    assert_eq!(of_type(SECRET), Ok(false));
    assert!(allows(&grant, EDS, "anything"));
    assert!(allows(&grant, SECRET, "kubernetes://shop/tls"));
    assert!(!allows(&grant, SECRET, "kubernetes://shopping/tls"));
    assert!(!allows(&grant, SECRET, "kubernetes://shop"));
    let located = ResourceName::located("kubernetes://shop/tls", &[("a".into(), "b".into())].into());
    let other =
        ResourceName::located("kubernetes://cart/tls", &[("a".into(), "kubernetes://shop/".into())].into());
    let secrets = url(SECRET);
    let secrets = grant.of_type(&secrets).unwrap();
    assert!(secrets.allows(&located) && !secrets.allows(&other), "parameters make no other name");
    // `all` leaves Secrets out, however a client spells the type.
    let rules = vec![rule("any", IdentityPattern::Any, RuleVerdict::Allow(vec![all()]))];
    let grant = decide(&Policy::new(Mode::Enforce, rules), &web("shop"), None).unwrap();
    for spelled in [
        &format!("type.googleapis.com/{SECRET}"),
        "type.googleapis.com/envoy.api.v2.auth.Secret",
        SECRET,
        &format!("example.com/{SECRET}"),
        &format!("TYPE.googleapis.com/{}", SECRET.to_uppercase()),
    ] {
        assert!(grant.of_type(&TypeUrl::new(spelled)).is_err(), "{spelled}");
    }
    assert!(grant.of_type(&TypeUrl::new("type.googleapis.com/a.B")).is_ok());
}

#[test]
fn aut_7_globs_and_authorities() {
    let entry = |names: Option<Vec<NamePattern>>, authorities: &[&str], wildcard| Allow {
        types: Types::Listed(vec![url(EDS)]),
        names,
        authorities: Some(authorities.iter().map(|name| (*name).into()).collect()),
        wildcard,
    };
    let grant = |entry: Allow| {
        let rules = vec![rule("any", IdentityPattern::Any, RuleVerdict::Allow(vec![entry]))];
        decide(&Policy::new(Mode::Enforce, rules), &web("shop"), None).unwrap()
    };
    let (a, b) = (format!("xdstp://a/{EDS}/shop/x"), format!("xdstp://b/{EDS}/shop/x"));
    let of_a = grant(entry(None, &["a"], false));
    assert!(allows(&of_a, EDS, &a) && !allows(&of_a, EDS, &b) && !allows(&of_a, EDS, "x"));
    assert!(!allows(&of_a, EDS, &format!("xdstp:{EDS}/x")));
    let with_old = grant(entry(None, &["a"], true));
    assert!(allows(&with_old, EDS, &a) && !allows(&with_old, EDS, &b) && allows(&with_old, EDS, "x"));
    let prefix = format!("xdstp://a/{EDS}/shop/");
    let pattern = NamePattern { how: Match::Prefix, text: Template::literal(&prefix) };
    let below = grant(entry(Some(vec![pattern]), &["a"], false));
    assert!(allows(&below, EDS, &a) && allows(&below, EDS, &format!("xdstp://a/{EDS}/shop/*")));
    assert!(!allows(&below, EDS, &format!("xdstp://a/{EDS}/*")), "the glob has members that are denied");
}

#[test]
fn aut_10_without_a_policy_secrets_need_a_proved_identity_or_this_host() {
    let policy = Policy::default();
    let secrets = |identity: &Arc<Identity>, is_local| {
        let claimant = Claimant { listener: "main", identity, is_local };
        let decision = policy.decide(claimant, None);
        assert!(decision.grant.of_type(&url(CDS)).is_ok());
        decision.grant.of_type(&url(SECRET)).map(|_| ()).map_err(|denial| denial.what())
    };
    let anonymous = Arc::new(Identity::Anonymous);
    assert_eq!(secrets(&anonymous, false), Err("type"));
    assert_eq!(secrets(&anonymous, true), Ok(()));
    assert_eq!(secrets(&web("shop"), false), Ok(()));
    // Its class decides: only the operator's signature opens Secrets to clients that share a proof (IDN-5).
    assert_eq!(secrets(&Arc::new(Identity::TrustDomain("gateway".into())), false), Ok(()));
    // A report denies nothing more, and nothing less.
    let policy = Policy::new(Mode::Report, Vec::new());
    let decision = policy.decide(claimant(&anonymous), None);
    assert!(decision.denial.is_some());
    assert!(decision.grant.of_type(&url(SECRET)).is_err() && decision.grant.of_type(&url(CDS)).is_ok());
}

#[test]
fn aut_15_a_report_has_the_grant_that_the_rules_would_give() {
    let policy = Policy::new(Mode::Report, vec![sidecars()]);
    let decision = policy.decide(claimant(&web("shop")), Some(&node("web.1", "shop")));
    assert_eq!((decision.denial, decision.rule), (None, Some(0)));
    let secrets = url(SECRET);
    let name = ResourceName::new("kubernetes://cart/tls");
    assert!(decision.grant.of_type(&secrets).unwrap().allows(&name), "nothing is denied");
    assert!(!decision.grant.reported_of_type(&secrets).unwrap().unwrap().allows(&name));
}

/// AUT-13: no text has the rule, or a value that would have passed.
#[test]
fn aut_13_texts_repeat_the_clients_own_values_and_no_others() {
    let policy = Policy::new(Mode::Enforce, vec![sidecars()]);
    let long = "x".repeat(10_000);
    let text = decide(&policy, &web("shop"), Some(&node("web.1", &long))).unwrap_err();
    assert!(text.len() < 400 && !text.contains("sidecars"), "{text}");
    let name = ResourceName::new(&long);
    let text = Denial::Name(url(CDS), name).status(&web("shop")).message;
    assert!(text.len() < 400, "{text}");
    let anonymous = Denial::Identity.status(&Identity::Anonymous).message;
    assert_eq!(&*anonymous, "a client without a proved identity has no access here");
}

#[test]
fn idn_5_a_pattern_of_a_trust_domain_takes_all_that_its_authorities_prove() {
    let pattern = IdentityPattern::TrustDomain("prod.example".into());
    let matches = |identity: &Identity| pattern.matches(identity).is_some();
    assert!(matches(&Identity::TrustDomain("prod.example".into())) && matches(&web("shop")));
    for other in [
        Identity::TrustDomain("prod".into()),
        Identity::Dns("prod.example".into()),
        Identity::Spiffe(SpiffeId::parse("spiffe://test.example/ns/a/sa/web").unwrap()),
        Identity::Anonymous,
    ] {
        assert!(!matches(&other), "{other}");
    }
}
