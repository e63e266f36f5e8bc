//! One cluster of a wildcard changes, and every session gets the change; and a complete set, encoded once.

use sluice_engine::downstream::Answer;
use sluice_xds::{Request, Response, TypeUrl, Variant};

use super::CLUSTER;
use super::relay::{Encoded, Relay, encode};

/// Sessions with all clusters, and a server about to change one cluster.
pub struct FanOut {
    relay: Relay,
    type_url: TypeUrl,
    clusters: usize,
    revision: usize,
}

impl FanOut {
    pub fn new(variant: Variant, sessions: usize, clusters: usize) -> FanOut {
        let mut relay = Relay::new();
        let type_url = TypeUrl::of_message(CLUSTER);
        for client in 0..sessions {
            relay.join(variant);
            let request = relay.request(client, &type_url, &[]);
            relay.take(client, &request);
            relay.settle();
        }
        let all = relay.response(&type_url, 0..clusters, 0);
        relay.receive(all);
        let mut made = Vec::new();
        for client in 0..sessions {
            assert!(relay.send(client, &mut made) > clusters * super::RESOURCE_BYTES);
        }
        assert_eq!(made.len(), 1, "one body for all");
        FanOut { relay, type_url, clusters, revision: 0 }
    }

    /// As [`FanOut::new`], with a plan that enforces, after its first push.
    pub fn by_pushes(variant: Variant, sessions: usize, clusters: usize) -> FanOut {
        let mut fan_out = FanOut::new(variant, sessions, clusters);
        fan_out.relay.begin_plan();
        let first = fan_out.next_response();
        fan_out.deliver(first);
        fan_out
    }

    /// Lets every client ACK. Returns the response with the next change.
    pub fn next_response(&mut self) -> Response {
        for client in 0..self.relay.clients.len() {
            let ack = self.relay.request(client, &self.type_url, &[]);
            self.relay.take(client, &ack);
        }
        self.relay.settle();
        self.relay.settle_push(self.revision as u64);
        self.revision += 1;
        let number = self.revision % self.clusters;
        self.relay.response(&self.type_url, std::iter::once(number), self.revision)
    }

    /// The ACKs of all clients for one change, with nothing else due.
    pub fn acks(&mut self) -> Vec<Request> {
        let response = self.next_response();
        self.deliver(response);
        let clients = 0..self.relay.clients.len();
        assert!(clients.clone().all(|client| self.relay.poll(client).is_none()), "one change, one answer");
        clients.map(|client| self.relay.request(client, &self.type_url, &[])).collect()
    }

    /// Takes the ACKs, and looks for answers as the driver does. Returns the number of looks.
    pub fn take(&mut self, acks: &[Request]) -> usize {
        let looks = |(client, ack): (usize, &Request)| {
            let is_due = !self.relay.take(client, ack).rests;
            usize::from(is_due && self.relay.poll(client).is_none())
        };
        acks.iter().enumerate().map(looks).sum()
    }

    /// The source applies the change and wakes the sessions; every session polls and commits; the body is
    /// encoded once. With a plan the change wakes nobody, and all sessions poll after their admission. Returns the bytes
    /// for all connections.
    pub fn deliver(&mut self, response: Response) -> usize {
        let mut made = Vec::new();
        let mut woken = self.relay.receive(response);
        if self.relay.is_holding() {
            assert!(woken.is_empty(), "the change is held back");
            woken = self.relay.push(self.revision as u64);
        }
        let bytes = woken.iter().map(|session| self.relay.send(session.0 as usize, &mut made)).sum();
        assert!(woken.len() == self.relay.clients.len() && made.len() == 1, "one body for all");
        bytes
    }
}

/// The first answer to a wildcard of this number of clusters.
pub fn full_set(variant: Variant, clusters: usize) -> Answer {
    let mut relay = Relay::new();
    let type_url = TypeUrl::of_message(CLUSTER);
    relay.join(variant);
    let request = relay.request(0, &type_url, &[]);
    relay.take(0, &request);
    relay.settle();
    let all = relay.response(&type_url, 0..clusters, 0);
    relay.receive(all);
    let (_, answer) = relay.poll(0).expect("a first answer");
    let encoded = encode(&answer);
    assert!(encoded.bytes() > clusters * super::RESOURCE_BYTES);
    answer
}

/// Composes and encodes an answer.
pub fn encode_once(answer: &Answer) -> Encoded {
    encode(answer)
}
