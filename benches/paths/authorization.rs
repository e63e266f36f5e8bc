//! The decision about a stream, and about a name.

use std::sync::Arc;

use sluice_engine::authorization::{
    Allow, Claimant, Condition, Field, Grant, IdentityPattern, Match, Mode, NamePattern, NodeCondition,
    Policy, Rule, RuleVerdict, Template, Types,
};
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{Node, ResourceName, TypeUrl, Value};

use super::name;

const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// Rules before the one that matches.
const RULES: usize = 19;

/// The rules of `docs/configuration.md`, after rules for other clients.
pub struct Authorize {
    policy: Policy,
    identity: Arc<Identity>,
    node: Node,
    pub type_url: TypeUrl,
    pub names: Vec<ResourceName>,
    /// Names of another namespace.
    foreign: Vec<ResourceName>,
}

impl Authorize {
    pub fn new(names: usize) -> Authorize {
        let mut rules: Vec<Rule> = (0..RULES).map(other).collect();
        rules.push(sidecars());
        let id = SpiffeId::parse("spiffe://prod.example/ns/shop/sa/web-frontend").expect("a SPIFFE ID");
        let metadata = [("NAMESPACE".to_owned(), Value::String("shop".into()))].into();
        let of = |namespace: &str| {
            let secret = |number| format!("kubernetes://{namespace}/{}", name(number).as_str()).into();
            (0..names).map(secret).collect()
        };
        Authorize {
            policy: Policy::new(Mode::Enforce, rules),
            identity: Arc::new(Identity::Spiffe(id)),
            node: Node { id: "web-frontend.7d9f-x2".into(), metadata, ..Node::default() },
            type_url: TypeUrl::of_message(SECRET),
            names: of("shop"),
            foreign: of("shoe"),
        }
    }

    /// A stream.
    pub fn decide(&self) -> Arc<Grant> {
        let claimant = Claimant { listener: "mesh", identity: &self.identity, is_local: false };
        self.policy.decide(claimant, Some(&self.node)).grant
    }

    /// All names of a stream; the number of allowed ones.
    pub fn names(&self, grant: &Grant) -> usize {
        self.allowed(grant, &self.names)
    }

    /// The same with the names of another namespace: none is allowed.
    pub fn foreign_names(&self, grant: &Grant) -> usize {
        self.allowed(grant, &self.foreign)
    }

    fn allowed(&self, grant: &Grant, names: &[ResourceName]) -> usize {
        let of_type = grant.of_type(&self.type_url);
        let Ok(of_type) = of_type else { panic!("the rule lists the type") };
        names.iter().filter(|name| of_type.allows(name)).count()
    }
}

/// A rule for another trust domain, for one namespace, or for one role in every namespace.
fn other(number: usize) -> Rule {
    let pattern = match number % 3 {
        0 => format!("spiffe://other-{number}.example/ns/{{ns}}/sa/{{sa}}"),
        1 => format!("spiffe://prod.example/ns/team-{number}/sa/{{sa}}"),
        _ => format!("spiffe://prod.example/ns/{{ns}}/sa/job-{number}"),
    };
    rule(pattern.clone(), identity(&pattern), Vec::new(), vec![all()])
}

fn sidecars() -> Rule {
    let identity = identity("spiffe://prod.example/ns/{ns}/sa/{sa}");
    let captures = identity.captures();
    let template = |text| Template::parse(text, &captures).unwrap_or_else(|_| panic!("a template"));
    let secrets = Allow {
        types: Types::Listed(vec![TypeUrl::of_message(SECRET)]),
        names: Some(vec![NamePattern { how: Match::Prefix, text: template("kubernetes://{ns}/") }]),
        authorities: None,
        wildcard: false,
    };
    let text = |field, how, text| NodeCondition { field, condition: Condition::Text(how, template(text)) };
    let node = vec![
        text(Field::Id, Match::Prefix, "{sa}."),
        text(Field::Metadata(vec!["NAMESPACE".into()]), Match::Exact, "{ns}"),
    ];
    rule("sidecars".to_owned(), identity, node, vec![all(), secrets])
}

fn rule(name: String, identity: IdentityPattern, node: Vec<NodeCondition>, allow: Vec<Allow>) -> Rule {
    Rule { name: name.into(), listeners: Vec::new(), identity, node, verdict: RuleVerdict::Allow(allow) }
}

fn identity(pattern: &str) -> IdentityPattern {
    IdentityPattern::spiffe(pattern).unwrap_or_else(|_| panic!("a pattern"))
}

fn all() -> Allow {
    Allow { types: Types::All, names: None, authorities: None, wildcard: true }
}
