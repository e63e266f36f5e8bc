//! Clients of a wildcard are sent the first answer, with a body from the cache.

use sluice_engine::downstream::AnswerKey;
use sluice_xds::{TypeUrl, Variant};

use super::CLUSTER;
use super::relay::{Encoded, Relay};

/// The clients of the answer.
pub const CLIENTS: usize = 50;

/// Clients that have asked for the wildcard. Another client has the answer.
pub struct FirstAnswer {
    relay: Relay,
    made: Vec<(AnswerKey, Encoded)>,
}

impl FirstAnswer {
    /// An answer in so many messages of some 4,000 clusters.
    pub fn new(messages: usize) -> FirstAnswer {
        let (mut relay, mut made) = (Relay::new(), Vec::new());
        let type_url = TypeUrl::of_message(CLUSTER);
        for client in 0..=CLIENTS {
            relay.join(Variant::Delta);
            let request = relay.request(client, &type_url, &[]);
            relay.take(client, &request);
            relay.settle();
        }
        let all = relay.response(&type_url, 0..4_000 * messages, 0);
        relay.receive(all);
        relay.send(0, &mut made);
        for message in 1..=messages {
            assert_eq!(relay.send(0, &mut made) > 0, message < messages, "{messages} messages");
        }
        FirstAnswer { relay, made }
    }

    /// Sends all messages to all clients, none of which has answered. Returns the bytes.
    pub fn send(&mut self) -> usize {
        let FirstAnswer { relay, made } = self;
        let send = |client| {
            std::iter::repeat_with(|| relay.send(client, made)).take_while(|bytes| *bytes > 0).sum::<usize>()
        };
        (1..=CLIENTS).map(send).sum()
    }
}
