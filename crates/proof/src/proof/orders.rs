//! Orders of operators: `sluice classes prove`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::class::ClassProof;
use super::input::{ClassKey, MemberId, OrderId, ProveOrder};
use super::report::{ProveState, SampleResult};
use super::reports::namesakes;
use sluice_engine::Time;

/// Orders to remember. An order beyond them is refused while all others run.
const ORDERS_MAX: usize = 16;
/// A finished order is remembered for so long.
const KEPT: Duration = Duration::from_secs(3_600);
/// Samples at once, for all orders.
const STREAMS_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Order {
    id: OrderId,
    /// `None`: the class's own node on another connection (PRF-18).
    queue: VecDeque<Option<MemberId>>,
    running: usize,
    streams: usize,
    state: ProveState,
    since: Time,
    done_at: Option<Time>,
}

/// The orders of a server, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    orders: VecDeque<Order>,
    last: u64,
}

impl Orders {
    /// Takes an order; `None` while too many others run. `refused`: the reason why the class cannot be asked.
    pub fn add(
        &mut self,
        order: &ProveOrder,
        class: Option<&ClassProof>,
        refused: Option<Arc<str>>,
        now: Time,
    ) -> Option<OrderId> {
        self.orders.retain(|order| order.done_at.is_none_or(|at| now.since(at) < KEPT));
        while self.orders.len() >= ORDERS_MAX
            && let Some(done) = self.orders.iter().position(|order| order.done_at.is_some())
        {
            self.orders.remove(done);
        }
        if self.orders.len() >= ORDERS_MAX {
            return None;
        }
        self.last += 1;
        let id = OrderId(self.last);
        let queue = match (&refused, class) {
            (None, Some(_)) if order.replicas => VecDeque::from([None]),
            (None, Some(class)) => members(class, order.all).into_iter().map(Some).collect(),
            _ => VecDeque::new(),
        };
        let refused = refused.or_else(|| nobody_to_ask(class?).filter(|_| queue.is_empty()).map(Arc::from));
        let is_done = queue.is_empty();
        let state = ProveState {
            class: order.class.clone(),
            replicas: order.replicas,
            asked: queue.len(),
            equal: 0,
            differs: 0,
            no_word: 0,
            is_done,
            refused,
        };
        let streams = (order.streams.max(1) as usize).min(STREAMS_MAX);
        self.orders.push_back(Order {
            id,
            queue,
            running: 0,
            streams,
            state,
            since: now,
            done_at: is_done.then_some(now),
        });
        Some(id)
    }

    pub fn state(&self, id: OrderId) -> Option<ProveState> {
        self.orders.iter().find(|order| order.id == id).map(|order| order.state.clone())
    }

    /// The next member to sample, if an order has room. The caller begins the sample, or gives the member
    /// back.
    pub fn next(&mut self) -> Option<(OrderId, ClassKey, Option<MemberId>)> {
        let running: usize = self.orders.iter().map(|order| order.running).sum();
        if running >= STREAMS_MAX {
            return None;
        }
        let order =
            self.orders.iter_mut().find(|order| order.running < order.streams && !order.queue.is_empty())?;
        let member = order.queue.pop_front()?;
        order.running += 1;
        Some((order.id, order.state.class.clone(), member))
    }

    /// The member cannot be asked now, and is asked later: behind the others.
    pub fn put_back(&mut self, id: OrderId, member: Option<MemberId>) {
        if let Some(order) = self.orders.iter_mut().find(|order| order.id == id) {
            order.running = order.running.saturating_sub(1);
            order.queue.push_back(member);
        }
    }

    /// Whether an order is older than this.
    pub fn has_waited(&self, id: OrderId, age: Duration, now: Time) -> bool {
        self.orders.iter().any(|order| order.id == id && now.since(order.since) > age)
    }

    /// A sample of the order has ended. `None`: the member cannot be asked any more.
    pub fn finish(&mut self, id: OrderId, result: Option<SampleResult>, now: Time) {
        let Some(order) = self.orders.iter_mut().find(|order| order.id == id) else { return };
        order.running = order.running.saturating_sub(1);
        match result {
            Some(SampleResult::Equal) => order.state.equal += 1,
            Some(SampleResult::Differs) => order.state.differs += 1,
            Some(SampleResult::Lag | SampleResult::Restless | SampleResult::NoWord) | None => {
                order.state.no_word += 1
            }
        }
        order.close(now);
    }

    /// The class cannot be asked any more.
    pub fn refuse(&mut self, class: Option<&ClassKey>, reason: &str, now: Time) {
        for order in &mut self.orders {
            let is_concerned = class.is_none_or(|class| *class == order.state.class);
            if is_concerned && !order.state.is_done {
                order.state.no_word += order.queue.len();
                order.queue.clear();
                order.state.refused = Some(reason.into());
                order.close(now);
            }
        }
    }

    /// Whether an order waits for the begin of a sample.
    pub fn is_waiting(&self) -> bool {
        self.orders.iter().any(|order| order.running < order.streams && !order.queue.is_empty())
    }
}

impl Order {
    fn close(&mut self, now: Time) {
        if self.queue.is_empty() && self.running == 0 {
            self.state.is_done = true;
            self.done_at.get_or_insert(now);
        }
    }
}

/// The reason why a class without a member to ask about is not proved. `None`: the server sees the only
/// client, and nobody differs.
fn nobody_to_ask(class: &ClassProof) -> Option<&'static str> {
    let mut keys = class.population.residents().map(|(_, resident)| resident.node_key).peekable();
    if keys.peek().is_none() {
        return Some("the class has no client now");
    }
    let has_others = keys.any(|key| key != class.representative.node_key);
    if has_others {
        return Some(
            "no other client may be asked about: `proof.never` matches, or there is nothing to ask for",
        );
    }
    (!namesakes(class).is_empty()).then_some(
        "all clients have the id of the one that the server sees, and no server is shown an id twice",
    )
}

/// The members that can be asked: all, or a member of each fingerprint.
fn members(class: &ClassProof, all: bool) -> VecDeque<MemberId> {
    let is_askable = |entry: &(MemberId, &super::population::Resident)| {
        entry.1.is_askable() && entry.1.node_key != class.representative.node_key
    };
    if all {
        return class.population.residents().filter(is_askable).map(|entry| entry.0).collect();
    }
    let first = |print| class.population.with_print(print).find(is_askable).map(|entry| entry.0);
    class.population.prints().filter_map(|entry| first(entry.0)).collect()
}
