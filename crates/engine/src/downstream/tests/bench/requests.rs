//! Requests of clients.

use crate::downstream::tests::bench::{Bench, ClientId, name_of, names_of, url};
use crate::downstream::{RequestOutcome, Verdict};
use sluice_xds::{Code, DeltaRequest, Request, ResourceName, SotwRequest, Status, Variant, Version};

impl Bench {
    // === SotW requests ===

    /// Sends a list of names like a well-behaved client: with its newest nonce and version, so the request is
    /// an ACK, too.
    pub fn ask(&mut self, client: ClientId, message: &str, list: &str) -> RequestOutcome {
        let (nonce, version) = {
            let held = self.held(client, message);
            (held.nonce.clone(), held.version.clone())
        };
        self.ask_with(client, message, list, &nonce, &version, None)
    }

    pub fn ask_with(
        &mut self,
        client: ClientId,
        message: &str,
        list: &str,
        nonce: &str,
        version: &str,
        error: Option<Status>,
    ) -> RequestOutcome {
        let routes = self.clients[client].routes;
        let request = SotwRequest {
            version_info: version.to_owned(),
            node: None,
            resource_names: names_of(message, list),
            type_url: url(message).as_str().to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error,
        };
        let is_new = !self.clients[client].session.subscriptions().iter().any(|s| s.type_url == url(message));
        let held = self.held(client, message);
        held.unanswered.retain(|sent| sent != nonce);
        list.clone_into(&mut held.list);
        if is_new && !version.is_empty() {
            held.returning = request.resource_names.iter().cloned().collect();
        }
        held.want_sotw(&request.resource_names, routes.legacy);
        self.request(client, Request::Sotw(request))
    }

    // === delta requests ===

    /// `+a -b`: a spontaneous change, without a nonce.
    pub fn change(&mut self, client: ClientId, message: &str, list: &str) -> RequestOutcome {
        self.change_with(client, message, list, "", &[], None)
    }

    pub fn change_with(
        &mut self,
        client: ClientId,
        message: &str,
        list: &str,
        nonce: &str,
        presented: &[(&str, Version)],
        error: Option<Status>,
    ) -> RequestOutcome {
        let part = |sign: char| -> Vec<ResourceName> {
            list.split_whitespace()
                .filter_map(|word| word.strip_prefix(sign))
                .map(|name| name_of(message, name))
                .collect()
        };
        let request = DeltaRequest {
            node: None,
            type_url: url(message).as_str().to_owned(),
            subscribe: part('+'),
            unsubscribe: part('-'),
            initial_resource_versions: presented
                .iter()
                .map(|(name, version)| (name_of(message, name), version.to_string()))
                .collect(),
            response_nonce: nonce.to_owned(),
            error_detail: error,
        };
        let routes = self.clients[client].routes;
        let is_new = !self.clients[client].session.subscriptions().iter().any(|s| s.type_url == url(message));
        let held = self.held(client, message);
        held.unanswered.retain(|sent| sent != nonce);
        held.want_delta(&request.subscribe, &request.unsubscribe, is_new && list.is_empty() && routes.legacy);
        for (name, _) in presented.iter().filter(|_| is_new) {
            held.due.remove(&name_of(message, name));
        }
        self.request(client, Request::Delta(request))
    }

    // === answers of clients ===

    /// ACKs the latest response of a type.
    pub fn ack(&mut self, client: ClientId, message: &str) -> Verdict {
        self.answer(client, message, None).verdict
    }

    pub fn nack(&mut self, client: ClientId, message: &str) -> Verdict {
        self.nack_with(client, message, "")
    }

    pub fn nack_with(&mut self, client: ClientId, message: &str, text: &str) -> Verdict {
        self.answer(client, message, Some(Status::new(Code::Internal, text))).verdict
    }

    fn answer(&mut self, client: ClientId, message: &str, error: Option<Status>) -> RequestOutcome {
        let variant = self.clients[client].variant;
        let held = self.held(client, message);
        let (nonce, version) = (held.nonce.clone(), held.version.clone());
        let list = held.list.clone();
        match variant {
            Variant::Sotw => self.ask_with(client, message, &list, &nonce, &version, error),
            Variant::Delta => self.change_with(client, message, "", &nonce, &[], error),
        }
    }
}
