//! The classes of one server, as the machine sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::driver::ground::class_identity::{class_digest, of_member};
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::ground::servers::Place;
use crate::driver::ground::source_key::Owner;
use crate::driver::ground::splits::{SplitCause, Splits};
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::table::Sources;
use crate::telemetry::{SourceState, wall_now};
use sluice_engine::Time;
use sluice_engine::downstream::SourceId;
use sluice_engine::snapshot::{Snapshot, TypeStanding};
use sluice_identity::Identity;
use sluice_proof::learning::node_fields;
use sluice_proof::node_fields::NodeFields;
use sluice_proof::proof::{ClassFacts, ClassKey, Content, Proof, RestoredSplit};
use sluice_xds::{Code, Node, TypeUrl};

/// A fact as the machine knows it, if the machine was told.
#[derive(Default)]
struct Told(Option<bool>);

impl Told {
    /// Whether the machine has to hear of the fact now.
    fn is_news(&mut self, fact: bool) -> bool {
        self.0.replace(fact) != Some(fact)
    }
}

/// A class and its source. Held weakly: the proof keeps no source.
pub(super) struct FollowedClass {
    pub key: ClassKey,
    source: Weak<SourceHandle>,
    /// The rule and the shown node that the machine knows; `None` before the first client.
    facts: Option<(Arc<str>, Arc<Node>)>,
    /// The content that the machine knows.
    content: Option<Arc<Snapshot>>,
    /// Whether a plan holds content of the class back. The machine may know the class from another source.
    is_held: Told,
    /// Whether an operator split the class off.
    is_operators: Told,
    /// The machine knows the split of before this task that made the class, if there is one.
    is_restored: bool,
}

/// The proved classes of one server.
#[derive(Default)]
pub(super) struct ClassFollower(BTreeMap<SourceId, FollowedClass>);

impl ClassFollower {
    /// Looks for new sources, and for sources that have ended. Returns whether the server registers clients
    /// while connected, by the server's words to any source (PRF-5).
    pub fn find(
        &mut self,
        place: Place,
        rules: &ProofRules,
        sources: &Sources,
        machine: &mut Proof,
        now: Time,
    ) -> bool {
        let (mut present, mut registers_clients) = (BTreeMap::new(), false);
        for source in sources.all().into_iter().filter(|source| source.key().place == place) {
            let (key, status) = (source.key(), source.status());
            registers_clients |= source.has_lifecycle();
            if key.owner == Owner::Everyone && rules.proves(&status.list, &key.class) {
                let class = status.class.digest.clone();
                present.insert(source.id(), (class, Arc::downgrade(&source)));
            }
        }
        self.0.retain(|id, class| {
            let stays = present.contains_key(id);
            // Another source of the class may have taken its place already.
            if !stays && !present.values().any(|(key, _)| *key == class.key) {
                machine.class_ended(&class.key, now);
            }
            stays
        });
        for (id, (key, source)) in present {
            let new = || FollowedClass {
                key,
                source,
                facts: None,
                content: None,
                is_held: Told::default(),
                is_operators: Told::default(),
                is_restored: false,
            };
            self.0.entry(id).or_insert_with(new);
        }
        // The server sees a node before the first client has come.
        for class in self.0.values().filter(|class| class.facts.is_none()) {
            if let Some(node) = class.source.upgrade().and_then(|source| source.shown()) {
                machine.shows(&class.key, &node, now);
            }
        }
        registers_clients
    }

    /// Forgets all that the machine was told, so that it is told again.
    pub fn begin_anew(&mut self) {
        self.0.values_mut().for_each(|class| (class.facts, class.content) = (None, None));
    }

    /// The class of a source that the machine knows, once the server sees a node. `rule`: the rule of a
    /// client.
    pub fn known(
        &mut self,
        source: SourceId,
        rule: impl FnOnce() -> Arc<str>,
        rules: &ProofRules,
        machine: &mut Proof,
        now: Time,
    ) -> Option<ClassKey> {
        let class = self.0.get_mut(&source)?;
        if class.facts.is_none() {
            let node = class.source.upgrade()?.shown()?;
            class.tell(rule(), node, rules, machine, now);
        }
        Some(class.key.clone())
    }

    /// The fields of a client's node as the server of the class sees it (PRF-4).
    pub fn fields_as_shown(&self, source: SourceId, node: &Node) -> NodeFields {
        let class = self.0.get(&source).and_then(|class| class.source.upgrade());
        let shown = of_member(node);
        fields_of(&match class {
            Some(class) => class.key().class.with_identity(shown),
            None => shown,
        })
    }

    pub fn has(&self, source: SourceId) -> bool {
        self.0.contains_key(&source)
    }

    pub fn source(&self, key: &ClassKey) -> Option<Arc<SourceHandle>> {
        self.0.values().find(|class| class.key == *key)?.source.upgrade()
    }

    /// Tells the machine of which classes a plan holds content back (PRF-30).
    pub fn hold(&mut self, machine: &mut Proof, now: Time) {
        for class in self.0.values_mut() {
            let Some(source) = class.source.upgrade() else { continue };
            let is_held = source.published().held().is_some();
            if class.is_held.is_news(is_held) {
                machine.hold(&class.key, is_held, now);
            }
        }
    }

    /// Tells the machine which classes operators split off (PRF-31).
    pub fn leave_to_operators(&mut self, splits: &Splits, machine: &mut Proof, now: Time) {
        for class in self.0.values_mut() {
            let Some(source) = class.source.upgrade() else { continue };
            let is_operators = splits.is_operators(&source.key().class);
            if class.is_operators.is_news(is_operators) {
                machine.leave_to_operator(&class.key, is_operators, now);
            }
        }
    }

    /// Tells the machine the splits that another task or process made (PRF-32). `made_here`: the classes
    /// that this task has split.
    pub fn restore(
        &mut self,
        splits: &Splits,
        made_here: &BTreeSet<ClassKey>,
        machine: &mut Proof,
        now: Time,
    ) {
        if splits.is_empty() {
            return;
        }
        for class in self.0.values_mut().filter(|class| !class.is_restored && class.facts.is_some()) {
            class.is_restored = true;
            let Some(source) = class.source.upgrade() else { continue };
            let node_class = &source.key().class;
            let Some(parent) = &node_class.split_from else { continue };
            let parent: ClassKey = class_digest(parent).into();
            let Some(split) = splits.origin(node_class).filter(|_| !made_here.contains(&parent)) else {
                continue;
            };
            let (SplitCause::Proof { client, type_name }, Some(holds)) = (&split.cause, split.holds()) else {
                continue;
            };
            let restored = RestoredSplit {
                class: class.key.clone(),
                parent,
                type_url: TypeUrl::of_message(type_name),
                member_id: (&**client).into(),
                age: wall_now().duration_since(split.made_at()).unwrap_or_default(),
                holds,
            };
            machine.restore_split(restored, now);
        }
    }

    /// Tells the machine other content, and another member before the server.
    pub fn publish(&mut self, rules: &ProofRules, machine: &mut Proof, now: Time) {
        for class in self.0.values_mut() {
            let (Some((rule, shown)), Some(source)) = (&class.facts, class.source.upgrade()) else {
                continue;
            };
            if let Some(node) = source.shown().filter(|node| !Arc::ptr_eq(node, shown)) {
                let rule = rule.clone();
                class.tell(rule, node, rules, machine, now);
            }
            let snapshot = source.snapshot();
            // Before the first answer the server has not said whether clients are registered there.
            if class.content.is_none() && !has_answer(&snapshot) || source.has_lifecycle() {
                continue;
            }
            if class.content.as_ref().is_none_or(|content| !Arc::ptr_eq(content, &snapshot)) {
                let connection = Some(source.connection()).filter(|number| *number > 0);
                machine.class_published(&class.key, Content::of(&snapshot), connection, now);
                class.content = Some(snapshot);
            }
        }
    }

    /// Whether a class has lost the server, or has content from before a restart (PRF-20).
    pub fn is_unwell(&self) -> bool {
        let sources = self.0.values().filter_map(|class| class.source.upgrade());
        sources.into_iter().any(|source| {
            let status = source.status();
            let is_lost =
                matches!(status.state, SourceState::Backoff { .. } | SourceState::EndsStreams { .. });
            is_lost || status.restored || source.is_on_failover()
        })
    }

    /// Whether the server has no room for further streams.
    pub fn is_exhausted(&self) -> bool {
        let sources = self.0.values().filter_map(|class| class.source.upgrade());
        let errors = sources.into_iter().filter_map(|source| source.status().last_error.clone());
        errors.into_iter().any(|status| status.code == Code::ResourceExhausted)
    }
}

/// Whether the server has answered the source since the last loss.
fn has_answer(snapshot: &Snapshot) -> bool {
    let standing = snapshot.standing();
    let is_answered = |standing: &TypeStanding| standing.is_current || standing.answered.is_some();
    snapshot.types().any(|(type_url, _)| standing.of(type_url).is_some_and(is_answered))
}

/// The server sees the node, and no identity but what the node has of it.
fn fields_of(node: &Node) -> NodeFields {
    node_fields(node, &Identity::Anonymous)
}

impl FollowedClass {
    fn tell(&mut self, rule: Arc<str>, node: Arc<Node>, rules: &ProofRules, machine: &mut Proof, now: Time) {
        let fields = fields_of(&node);
        let is_never = rules.never_shows(&node);
        let split_from = self.source.upgrade().and_then(|source| source.key().class.split_from.clone());
        let split_from = split_from.map(|parent| class_digest(&parent).into());
        let of_class = ClassFacts { rule: rule.clone(), node: node.clone(), fields, is_never, split_from };
        machine.class(&self.key, of_class, now);
        self.facts = Some((rule, node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_30_a_new_source_of_a_class_tells_even_that_nothing_is_held() {
        let mut is_held = Told::default();
        let news = [false, false, true, true, false].map(|fact| is_held.is_news(fact));
        assert_eq!(news, [true, false, true, false, true]);
    }
}
