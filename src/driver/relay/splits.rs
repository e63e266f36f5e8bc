//! Splits of node classes by an operator (PRF-32).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::driver::api::proof::{JoinRefusal, SplitRefusal, SplitStatus};
use crate::driver::ground::class_identity::{class_digest, of_member};
use crate::driver::ground::source_key::Owner;
use crate::driver::ground::splits::{ClassSplit, NewSplit, SplitCause, SplitStore, values_at};
use crate::driver::relay::handle::Relay;
use crate::telemetry::wall_now;
use sluice_engine::class::{NodeClass, UpstreamNode};
use sluice_identity::Identity;
use sluice_proof::learning::node_fields;
use sluice_proof::node_fields::NodeFields;

pub(super) fn all(splits: &SplitStore) -> Vec<SplitStatus> {
    splits.get().all().map(|(class, split)| status(class.into(), split)).collect()
}

/// The split that made a class.
pub(super) fn origin(relay: &Relay, class: &NodeClass) -> Option<SplitStatus> {
    let parent = class.split_from.as_deref()?;
    let splits = relay.shared.durable.splits.get();
    Some(status(class_digest(parent).into(), splits.origin(class)?))
}

fn status(class: Arc<str>, split: &ClassSplit) -> SplitStatus {
    SplitStatus {
        class,
        fields: split.fields.iter().map(|field| Arc::from(&**field)).collect(),
        tuples: split.tuples(),
        found_by: match &split.cause {
            SplitCause::Proof { client, type_name } => Some(((&**client).into(), (&**type_name).into())),
            SplitCause::Operator => None,
        },
        since: split.made_at(),
        holds: split.holds(),
    }
}

/// Gives each value of the fields a class of its own.
pub(super) fn split(relay: &Relay, digest: &str, by: Vec<Box<str>>) -> Result<(), SplitRefusal> {
    let class = class_of(relay, digest).ok_or(SplitRefusal::NoClass)?;
    if class.upstream_node == UpstreamNode::Projection {
        return Err(SplitRefusal::Projection);
    }
    if class.is_of_one() {
        return Err(SplitRefusal::OfOne);
    }
    let members = members(relay, &class);
    let has = |path: &str| members.iter().any(|fields| fields.0.iter().any(|field| *field.path == *path));
    if let Some(path) = by.iter().find(|path| !has(path)) {
        return Err(SplitRefusal::NoField((&**path).into()));
    }
    let tuples: BTreeSet<_> = members.iter().map(|fields| values_at(fields, &by)).collect();
    if tuples.len() < 2 {
        return Err(SplitRefusal::OneValue);
    }
    let room = relay.tables.sources.room_beside(&class);
    if room < tuples.len() {
        return Err(SplitRefusal::NoRoom { needed: tuples.len(), room });
    }
    let split = NewSplit { class, fields: by, values: None, cause: SplitCause::Operator, holds: None };
    relay.shared.durable.splits.add(split, wall_now());
    Ok(())
}

/// Undoes, for each class, the split behind the class, or else all splits of the class. Nothing is done by
/// halves.
pub(super) fn join(relay: &Relay, digests: &[String]) -> Result<Vec<Arc<str>>, JoinRefusal> {
    let store = &relay.shared.durable.splits;
    let splits = store.get();
    let find = |digest: &String| {
        let part = class_of(relay, digest).filter(|class| splits.origin(class).is_some());
        let parent = part.as_ref().and_then(|class| class.split_from.as_deref());
        match parent {
            Some(parent) => Ok((class_digest(parent).into(), part)),
            None if splits.all().any(|(class, _)| class == digest) => Ok((Arc::from(&**digest), None)),
            None => Err(JoinRefusal { class: digest.clone(), reason: SplitRefusal::NotSplit }),
        }
    };
    let joins = digests.iter().map(find).collect::<Result<Vec<(Arc<str>, Option<NodeClass>)>, _>>()?;
    for (whole, part) in &joins {
        // The split may have ended with an earlier class.
        let _ = match part {
            Some(part) => store.join(part),
            None => store.join_all(whole),
        };
    }
    let joined: BTreeSet<Arc<str>> = joins.into_iter().map(|(whole, _)| whole).collect();
    joined.iter().for_each(|class| relay.proofs.joined(class));
    Ok(joined.into_iter().collect())
}

/// The class with this digest, if a shared source has it.
fn class_of(relay: &Relay, digest: &str) -> Option<NodeClass> {
    let sources = relay.tables.sources.all();
    let source = sources
        .iter()
        .find(|source| source.key().owner == Owner::Everyone && *source.status().class.digest == *digest)?;
    Some(source.key().class.clone())
}

/// The fields of the clients of a class, as its server sees them.
fn members(relay: &Relay, class: &NodeClass) -> Vec<NodeFields> {
    let (mut members, mut last) = (Vec::new(), None);
    while let Some(stream) = relay.tables.streams.next(last) {
        last = Some(stream.number());
        let node = stream.look(|node, _, sources| {
            let is_member = sources.iter().any(|(_, source)| source.key().class == *class);
            node.filter(|_| is_member).cloned()
        });
        let fields =
            node.map(|node| node_fields(&class.with_identity(of_member(&node)), &Identity::Anonymous));
        members.extend(fields);
    }
    members
}
