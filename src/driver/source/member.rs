//! The member whose node a class shows to its server, if the operator configured `upstream_node` so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::handle::Subscriber;
use super::witness::{Testimony, Witness};
use crate::driver::ground::class_identity::of_member;
use sluice_engine::cache::SessionId;
use sluice_engine::change::Change;
use sluice_engine::downstream::SourceId;
use sluice_engine::source::StreamIndex;
use sluice_xds::{Code, Node, TypeUrl};

/// The minimum time between two changes of the member. Each change costs the server a stream, and in a
/// restart of a fleet every member departs.
const PAUSE: Duration = Duration::from_secs(1);

/// Clients that leave a class by one change begin to move within this time.
const GATHER: Duration = Duration::from_millis(200);

/// The streams keep the nodes of the members.
#[derive(Debug, Default)]
pub struct Member {
    chosen: Option<SessionId>,
    /// The latest node before the server.
    node: Option<Arc<Node>>,
    /// The latest node that the server has answered.
    answered: Option<Arc<Node>>,
    /// The shown member has left for another class: other answers are no wonder.
    has_moved: bool,
    /// The members before and now, until the server has answered.
    witness: Option<Witness>,
    /// The member whose node the server refused.
    refused: Option<SessionId>,
    not_before: Option<Instant>,
    /// The shown member has left, and the pause is not over.
    is_due: bool,
}

impl Member {
    /// When to choose another member even if nobody comes or goes.
    pub fn due(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.is_due)
    }

    /// Updates the set of members of a source. Returns the node to show from now on, if it differs from the
    /// last. A client on its way to another class is no member any more: the server may know already what
    /// makes it another.
    pub fn follow(
        &mut self,
        streams: &HashMap<SessionId, Arc<dyn Subscriber>>,
        source: SourceId,
        now: Instant,
    ) -> Option<Node> {
        self.is_due = false;
        let stays = |stream: &Arc<dyn Subscriber>| !stream.is_leaving(source);
        if self.chosen.is_some_and(|chosen| streams.get(&chosen).is_some_and(stays)) {
            self.has_moved = false;
            return None;
        }
        let members = || streams.iter().filter(|(_, stream)| stays(stream)).map(|(id, _)| id);
        // Without members, the last node stays for as long as subscriptions linger.
        members().next()?;
        if self.not_before.is_some_and(|at| now < at) {
            self.is_due = true;
            return None;
        }
        // In a restart of a fleet, the newest member has restarted already. After a refusal, the next older
        // member is tried.
        let before = |id: &SessionId| self.refused.is_none_or(|refused| *id < refused);
        let newest = members().filter(|id| before(id)).max().or_else(|| members().max());
        let (id, stream) = newest.and_then(|id| Some((*id, streams.get(id)?)))?;
        let node = stream.node()?;
        let shown = of_member(&node);
        self.chosen = Some(id);
        self.not_before = Some(now + PAUSE);
        let previous = self.node.replace(node.clone());
        let is_other = previous.is_none_or(|previous| of_member(&previous) != shown);
        let is_evidence = is_other && !std::mem::take(&mut self.has_moved);
        self.witness = self.answered.clone().filter(|_| is_evidence).map(|before| Witness::new(before, node));
        is_other.then_some(shown)
    }

    /// A stream that began with the shown node ended without an answer. If the node may be the cause, the
    /// next stream begins with another member's node.
    pub fn refused(&mut self, code: Code) {
        let blames_the_node = matches!(
            code,
            Code::InvalidArgument
                | Code::NotFound
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::FailedPrecondition
        );
        if blames_the_node && let Some(chosen) = self.chosen.take() {
            self.refused = Some(chosen);
            self.is_due = true;
        }
    }

    /// A client begins to move to another class. If the server sees this one, others that go the same way are
    /// awaited for a moment, so that none of them is shown next.
    pub fn note_leaving(&mut self, session: SessionId, now: Instant) {
        if self.chosen == Some(session) {
            self.has_moved = true;
            self.not_before = self.not_before.max(Some(now + GATHER));
            self.is_due = true;
        }
    }

    /// A stream with the shown node has begun, and asks for these types.
    pub fn opened(&mut self, index: StreamIndex, types: impl Iterator<Item = TypeUrl>, now: Instant) {
        if let Some(witness) = &mut self.witness {
            witness.opened(index, types, now);
        }
    }

    /// The server accepts the shown node, unless the answer is still one to the former.
    pub fn heard(&mut self, index: StreamIndex, type_url: &TypeUrl, now: Instant) {
        self.refused = None;
        let is_heard = match &mut self.witness {
            Some(witness) => witness.heard(index, type_url, now),
            None => true,
        };
        if is_heard {
            self.answered.clone_from(&self.node);
        }
        self.witness.take_if(|witness| witness.is_over(now));
    }

    /// See [`Witness::testimony`].
    pub fn testimony(&self, change: &Change) -> Option<Testimony> {
        self.witness.as_ref()?.testimony(change)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sluice_xds::{RelayPath, Status};

    /// A number, and whether the client is on its way to another class.
    struct Client(u64, bool);

    impl Subscriber for Client {
        fn id(&self) -> SessionId {
            SessionId(self.0)
        }

        fn wake(&self) {}

        fn end(&self, _: Status) {}

        fn awaited_changes(&self, _: SourceId) -> Vec<u64> {
            Vec::new()
        }

        fn divert(self: Arc<Self>, _: TypeUrl) {}

        fn displaced(self: Arc<Self>, _: SourceId) {}

        fn is_leaving(&self, _: SourceId) -> bool {
            self.1
        }

        fn node(&self) -> Option<Arc<Node>> {
            Some(Arc::new(Node { id: format!("client-{}", self.0), ..Node::default() }))
        }

        fn relays(&self) -> Option<&RelayPath> {
            None
        }
    }

    /// `leaving`: the clients on their way to another class.
    fn shown_of(member: &mut Member, ids: &[u64], leaving: &[u64], now: Instant) -> Option<String> {
        let client = |id: &u64| Arc::new(Client(*id, leaving.contains(id))) as Arc<dyn Subscriber>;
        let streams = ids.iter().map(|id| (SessionId(*id), client(id))).collect();
        member.follow(&streams, SourceId(1), now).map(|node| node.id)
    }

    /// The server answers the shown node.
    fn answered(member: &mut Member, now: Instant) {
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        member.opened(0, [type_url.clone()].into_iter(), now);
        member.heard(0, &type_url, now);
    }

    /// The member that a witness compares with the shown one.
    fn before(member: &Member) -> Option<String> {
        Some(member.witness.as_ref()?.previous().id.clone())
    }

    fn shown(member: &mut Member, ids: &[u64], now: Instant) -> Option<String> {
        shown_of(member, ids, &[], now)
    }

    #[test]
    fn another_member_takes_over_when_the_one_that_is_shown_is_gone() {
        let (mut member, start) = (Member::default(), Instant::now());
        assert_eq!(shown(&mut member, &[1], start).unwrap(), "client-1");
        assert!(member.witness.is_none(), "the first has nobody before");
        answered(&mut member, start);
        let later = start + PAUSE;
        assert_eq!(shown(&mut member, &[1, 2, 3], later), None, "it is still there");
        assert_eq!(shown(&mut member, &[2, 3], later).unwrap(), "client-3");
        assert!(member.witness.is_some());
        assert_eq!(shown(&mut member, &[], later), None, "nobody is there to take over");
        assert_eq!(shown(&mut member, &[4], later), None, "not twice within the pause");
        assert_eq!(member.due(), Some(later + PAUSE));
        assert_eq!(shown(&mut member, &[4], later + PAUSE).unwrap(), "client-4");
        assert_eq!(member.due(), None);
    }

    /// The server tells the relabelled client's class at once, to all who see the class by this client.
    #[test]
    fn rly_11_a_client_on_its_way_to_another_class_is_shown_no_more() {
        let (mut member, start) = (Member::default(), Instant::now());
        assert_eq!(shown(&mut member, &[1, 2, 3], start).unwrap(), "client-3");
        answered(&mut member, start);
        let later = start + PAUSE;
        member.note_leaving(SessionId(3), later);
        assert_eq!(shown_of(&mut member, &[1, 2, 3], &[3], later), None, "others may follow");
        assert_eq!(member.due(), Some(later + GATHER));
        // Those that follow one after the other keep the place of the first no longer.
        member.note_leaving(SessionId(2), later + GATHER / 2);
        let at = later + GATHER;
        assert_eq!(shown_of(&mut member, &[1, 2, 3], &[3, 2], at).unwrap(), "client-1");
        assert_eq!(before(&member), None, "the one that moved had another class already");
        answered(&mut member, at);
        let last = at + PAUSE;
        assert_eq!(shown_of(&mut member, &[1, 2, 3], &[1, 2, 3], last), None, "nobody else is there");
        // The move is taken back, and the next departure is evidence again.
        member.note_leaving(SessionId(1), last);
        assert_eq!((shown(&mut member, &[1, 2, 3], last + GATHER), member.due()), (None, None));
        assert_eq!(shown(&mut member, &[2, 3], last + PAUSE).unwrap(), "client-3");
        assert_eq!(before(&member).unwrap(), "client-1");
    }

    /// A member that got no content is no witness of the content.
    #[test]
    fn rly_10_a_refused_member_is_compared_with_nobody() {
        let (mut member, start) = (Member::default(), Instant::now());
        assert_eq!(shown(&mut member, &[1], start).unwrap(), "client-1");
        answered(&mut member, start);
        assert_eq!(shown(&mut member, &[2, 3], start + PAUSE).unwrap(), "client-3");
        member.refused(Code::InvalidArgument);
        assert_eq!(shown(&mut member, &[2, 3], start + PAUSE * 2).unwrap(), "client-2");
        assert_eq!(before(&member).unwrap(), "client-1");
        // An answer on the stream of before is none to the newest.
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        member.heard(0, &type_url, start + PAUSE * 2);
        assert_eq!(shown(&mut member, &[4], start + PAUSE * 3).unwrap(), "client-4");
        assert_eq!(before(&member).unwrap(), "client-1");
        answered(&mut member, start + PAUSE * 3);
        member.heard(0, &type_url, start + PAUSE * 9);
        assert_eq!(before(&member), None, "later changes are pushes");
    }

    #[test]
    fn a_member_that_the_server_refuses_makes_way_for_the_next() {
        let (mut member, mut now) = (Member::default(), Instant::now());
        let mut next = |member: &mut Member| {
            now += PAUSE;
            shown(member, &[1, 2, 3], now)
        };
        assert_eq!(next(&mut member).unwrap(), "client-3");
        member.refused(Code::Unavailable);
        assert_eq!(next(&mut member), None, "that says nothing against the node");
        for expected in ["client-2", "client-1", "client-3"] {
            member.refused(Code::InvalidArgument);
            assert_eq!(next(&mut member).unwrap(), expected);
        }
    }
}
