//! A session subscribes to many names.

use sluice_engine::downstream::Verdict;
use sluice_xds::{Request, ResourceName, TypeUrl, Variant};

use super::relay::Relay;
use super::{ENDPOINTS, name};

/// A session, and the next request to handle.
pub struct Subscribe {
    relay: Relay,
    request: Request,
}

impl Subscribe {
    /// The first request of the type, for names without an earlier subscriber.
    pub fn first(names: usize) -> Subscribe {
        let mut relay = Relay::new();
        relay.join(Variant::Sotw);
        let request = relay.request(0, &TypeUrl::of_message(ENDPOINTS), &list(names));
        Subscribe { relay, request }
    }

    /// The ACK of the first answer: a SotW client repeats the whole list in each ACK.
    pub fn repeated(names: usize) -> Subscribe {
        let Subscribe { mut relay, request } = Subscribe::first(names);
        let type_url = TypeUrl::of_message(ENDPOINTS);
        relay.take(0, &request);
        relay.settle();
        let all = relay.response(&type_url, 0..names, 0);
        relay.receive(all);
        assert!(relay.send(0, &mut Vec::new()) > names * super::RESOURCE_BYTES);
        let request = relay.request(0, &type_url, &list(names));
        Subscribe { relay, request }
    }

    /// A further name of a delta client that has so many names, and was sent nothing.
    pub fn one_more_of(names: usize) -> Subscribe {
        let mut relay = Relay::new();
        relay.join(Variant::Delta);
        let type_url = TypeUrl::of_message(ENDPOINTS);
        let mut request = relay.request(0, &type_url, &list(names));
        for further in [names, names + 1] {
            relay.take(0, &request);
            relay.settle();
            request = relay.request(0, &type_url, &[name(further)]);
        }
        Subscribe { relay, request }
    }

    /// Handles the request in the session, and then the resulting demand in the source.
    pub fn take(&mut self) -> Verdict {
        let taken = self.relay.take(0, &self.request);
        self.relay.settle();
        taken.verdict
    }
}

fn list(names: usize) -> Vec<ResourceName> {
    (0..names).map(name).collect()
}
