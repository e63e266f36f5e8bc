//! Several servers in one list.

use std::time::Duration;

use crate::collection::CollectionKind;
use crate::downstream::SourceId;
use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, streams, url};
use crate::reachability::Reachability;
use crate::upstream::Input;
use sluice_xds::{Code, DeltaResponse, Response, Status};

pub const SECOND: Duration = Duration::from_secs(1);

/// The servers of one list, all connecting.
pub fn servers(count: u16) -> Bench {
    let mut bench = Bench::new((0..count).map(|_| streams()).collect());
    bench.servers = count;
    bench
}

pub fn down() -> Status {
    Status::new(Code::Unavailable, "down")
}

impl Bench {
    /// A server becomes unreachable.
    pub fn lose(&mut self, server: usize) {
        self.lose_all(server, 1);
    }

    /// As [`Bench::lose`], with this number of streams.
    pub fn lose_all(&mut self, server: usize, streams: usize) {
        for stream in 0..streams {
            let closed = Input::Closed { status: down(), jitter: 0.0 };
            self.sources[server].handle_upstream(stream, closed, self.now);
        }
        self.advance(SECOND);
        for stream in 0..streams {
            let failed = Input::ConnectFailed { status: down() };
            self.sources[server].handle_upstream(stream, failed, self.now);
        }
        self.settle();
        assert!(
            matches!(self.snapshots[server].standing().reach(), Reachability::Lost { .. }),
            "server {server}"
        );
    }

    /// A server answers on a stream for every type; the resources come with [`Bench::changes`].
    pub fn hear(&mut self, server: usize) {
        self.hear_all(server, 1);
    }

    /// As [`Bench::hear`], with this number of streams.
    pub fn hear_all(&mut self, server: usize, streams: usize) {
        self.hear_of(server, streams, &[CDS, EDS, LDS, RDS]);
    }

    /// As [`Bench::hear`], for these types.
    pub fn hear_of(&mut self, server: usize, streams: usize, messages: &[&str]) {
        for stream in 0..streams {
            self.sources[server].handle_upstream(stream, Input::Opened, self.now);
            for message in messages {
                let response = DeltaResponse {
                    system_version_info: String::new(),
                    type_url: url(message),
                    nonce: "n".into(),
                    resources: Vec::new(),
                    removed: Vec::new(),
                    errors: Vec::new(),
                    control_plane: String::new(),
                };
                let received = Input::Received(Response::Delta(response));
                self.sources[server].handle_upstream(stream, received, self.now);
            }
        }
        self.settle();
        assert!(
            matches!(self.snapshots[server].standing().reach(), Reachability::Heard { .. }),
            "server {server}"
        );
    }

    pub fn names(&mut self, server: usize, message: &str, list: &str) {
        self.changes(server, message, CollectionKind::Names, list, false);
    }

    pub fn all(&mut self, server: usize, message: &str, list: &str) {
        self.changes(server, message, CollectionKind::Wildcard, list, true);
    }

    pub fn serving(&self, client: ClientId) -> u16 {
        self.clients[client].session.served_by().map(|(_, server)| server).next().unwrap_or(0)
    }

    pub fn asks(&self, client: ClientId, server: u64) -> bool {
        self.clients[client].session.uses(SourceId(server))
    }

    /// Makes due moves, and drains the responses.
    pub fn follow(&mut self, client: ClientId) -> String {
        self.shift(client);
        self.drain(client)
    }
}
