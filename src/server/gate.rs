//! Admission of connections: the limits in total, per address and per identity.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::limits::ServerLimits;
use crate::telemetry::Limit;
use crate::telemetry::metrics::{DownstreamMetrics, GaugePart};
use sluice_identity::Identity;
use sluice_setting::InForce;

/// Counts the connections of all listeners, and per address if that number is limited.
pub(super) struct Gate {
    limits: InForce<ServerLimits>,
    /// The soft limit of open files.
    descriptors: u64,
    /// At most as many entries as open connections.
    addresses: Mutex<HashMap<IpAddr, u64>>,
    /// The same for identities (SEC-9).
    identities: Mutex<HashMap<Arc<Identity>, u64>>,
    is_out_of_memory: Box<dyn Fn() -> bool + Send + Sync>,
    metrics: Arc<DownstreamMetrics>,
}

/// A place among the open connections, returned on drop.
pub(super) struct ConnectionPermit {
    _open: GaugePart,
    /// Boxed: few relays limit connections in this way.
    counted: Option<Box<CountedClient>>,
    gate: Arc<Gate>,
}

/// The client of a connection, as far as the number of its connections is limited.
#[derive(Default)]
struct CountedClient {
    address: Option<IpAddr>,
    identity: Option<Arc<Identity>>,
}

impl ConnectionPermit {
    /// The connection belongs to this identity.
    ///
    /// # Errors
    /// The identity has as many connections as it may have; the refusal is already counted.
    pub(super) fn identify(&mut self, identity: &Arc<Identity>) -> Result<(), Limit> {
        let Some(max) = self.gate.limits.get().connections_per_identity else { return Ok(()) };
        // Others are no one client: a trust domain is all of its clients.
        if !matches!(**identity, Identity::Spiffe(_) | Identity::Dns(_)) {
            return Ok(());
        }
        if !enter(&mut self.gate.identities.lock(), identity.clone(), max) {
            self.gate.metrics.limit_hit(Limit::ConnectionsPerIdentity);
            return Err(Limit::ConnectionsPerIdentity);
        }
        self.counted.get_or_insert_default().identity = Some(identity.clone());
        Ok(())
    }
}

impl Gate {
    /// Has places for the configured number of connections or for the number that the file descriptors allow
    /// (FD21), whichever is smaller, and none while memory is short (FP7).
    pub(super) fn new(
        limits: InForce<ServerLimits>,
        metrics: Arc<DownstreamMetrics>,
        is_out_of_memory: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Gate> {
        let descriptors = rlimit::Resource::NOFILE.get_soft().unwrap_or(u64::MAX);
        let (addresses, identities) = (Mutex::default(), Mutex::default());
        let is_out_of_memory = Box::new(is_out_of_memory);
        Arc::new(Gate { limits, descriptors, addresses, identities, is_out_of_memory, metrics })
    }

    /// A place for one more connection. `address` is the address of the peer, `None` on a unix socket.
    ///
    /// # Errors
    /// The limit that is reached; the refusal is already counted.
    pub(super) fn enter(self: &Arc<Self>, address: Option<SocketAddr>) -> Result<ConnectionPermit, Limit> {
        // An IPv4 address received over an IPv6 socket is the same host.
        let address = address.map(|address| address.ip().to_canonical());
        let permit = self.place(address);
        permit.inspect_err(|limit| self.metrics.limit_hit(*limit))
    }

    fn place(self: &Arc<Self>, address: Option<IpAddr>) -> Result<ConnectionPermit, Limit> {
        if (self.is_out_of_memory)() {
            return Err(Limit::MemoryBytes);
        }
        let limits = self.limits.get();
        // A connection from before there was a limit per address does not count for its address.
        let address = match (address, limits.connections_per_ip) {
            (Some(address), Some(max)) => {
                if !enter(&mut self.addresses.lock(), address, max) {
                    return Err(Limit::ConnectionsPerIp);
                }
                Some(address)
            }
            _ => None,
        };
        let descriptors = self.descriptors.saturating_sub(limits.fd_reserve);
        let (max, limit) = connections_max(limits.connections, descriptors);
        match self.metrics.connection(max) {
            Some(open) => {
                let counted =
                    address.map(|address| Box::new(CountedClient { address: Some(address), identity: None }));
                Ok(ConnectionPermit { _open: open, counted, gate: self.clone() })
            }
            None => {
                leave(&self.addresses, address.as_ref());
                Err(limit)
            }
        }
    }
}

/// One more connection of `key`; false if there are `max` already.
fn enter<K: Eq + Hash>(table: &mut HashMap<K, u64>, key: K, max: u64) -> bool {
    match table.entry(key) {
        Entry::Occupied(open) if *open.get() >= max => return false,
        entry => *entry.or_default() += 1,
    }
    true
}

fn leave<K: Eq + Hash>(table: &Mutex<HashMap<K, u64>>, key: Option<&K>) {
    let Some(key) = key else { return };
    let mut table = table.lock();
    if let Some(open) = table.get_mut(key) {
        *open -= 1;
        if *open == 0 {
            table.remove(key);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(counted) = &self.counted else { return };
        leave(&self.gate.addresses, counted.address.as_ref());
        leave(&self.gate.identities, counted.identity.as_ref());
    }
}

/// The number of connections that fit, and the limit that determines the number.
fn connections_max(configured: u64, descriptors: u64) -> (u64, Limit) {
    if configured <= descriptors {
        (configured, Limit::Connections)
    } else {
        (descriptors, Limit::FileDescriptors)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn gate(limits: ServerLimits) -> (Arc<Gate>, Arc<DownstreamMetrics>) {
        let metrics = Arc::new(DownstreamMetrics::default());
        (Gate::new(InForce::new(limits), metrics.clone(), || false), metrics)
    }

    fn address(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn fd21_the_reserve_comes_off_the_descriptor_limit() {
        assert_eq!(connections_max(10, 10), (10, Limit::Connections));
        assert_eq!(connections_max(11, 10), (10, Limit::FileDescriptors));
        let (gate, metrics) = gate(ServerLimits { fd_reserve: u64::MAX, ..ServerLimits::default() });
        assert_eq!(gate.enter(None).err(), Some(Limit::FileDescriptors));
        assert_eq!(metrics.limit_hits(Limit::FileDescriptors), 1);
    }

    #[test]
    fn fp7_nobody_comes_in_while_memory_is_short() {
        let metrics = Arc::new(DownstreamMetrics::default());
        let gate = Gate::new(InForce::new(ServerLimits::default()), metrics.clone(), || true);
        assert_eq!(gate.enter(None).err(), Some(Limit::MemoryBytes));
        assert_eq!((metrics.limit_hits(Limit::MemoryBytes), metrics.connections_open.get()), (1, 0));
    }

    #[test]
    fn connections_of_one_address_are_limited_and_forgotten() {
        let limits = ServerLimits { connections_per_ip: Some(2), ..ServerLimits::default() };
        let (gate, metrics) = gate(limits);
        let first = gate.enter(address("10.0.0.1:1")).ok();
        let second = gate.enter(address("[::ffff:10.0.0.1]:2")).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(gate.enter(address("10.0.0.1:3")).err(), Some(Limit::ConnectionsPerIp));
        assert_eq!(metrics.limit_hits(Limit::ConnectionsPerIp), 1);
        let other = gate.enter(address("10.0.0.2:1")).ok();
        let local: Vec<_> = (0..3).map(|_| gate.enter(None).ok()).collect();
        assert!(other.is_some() && local.iter().all(Option::is_some), "others have places of their own");
        drop(first);
        assert!(gate.enter(address("10.0.0.1:4")).is_ok(), "its place is free again");
        drop((second, other, local));
        assert!(gate.addresses.lock().is_empty());
        assert_eq!(metrics.connections_open.get(), 0);
    }

    #[test]
    fn rel_5_other_limits_hold_for_the_next_connection_and_end_none() {
        let (limits, metrics) =
            (InForce::new(ServerLimits::default()), Arc::new(DownstreamMetrics::default()));
        let gate = Gate::new(limits.clone(), metrics.clone(), || false);
        let open: Vec<_> = (0..2).map(|_| gate.enter(address("10.0.0.1:1")).ok()).collect();
        limits.publish(ServerLimits { connections: 1, ..ServerLimits::default() });
        assert_eq!(gate.enter(None).err(), Some(Limit::Connections));
        assert_eq!(metrics.connections_open.get(), 2);
        limits.publish(ServerLimits { connections_per_ip: Some(1), ..ServerLimits::default() });
        let first = gate.enter(address("10.0.0.1:2")).ok();
        assert_eq!(gate.enter(address("10.0.0.1:3")).err(), Some(Limit::ConnectionsPerIp));
        drop((open, first));
        assert!(gate.addresses.lock().is_empty());
    }

    #[test]
    fn who_is_refused_for_all_does_not_count_for_its_address() {
        let limits = ServerLimits { connections: 1, connections_per_ip: Some(1), ..ServerLimits::default() };
        let (gate, metrics) = gate(limits);
        let first = gate.enter(None).ok();
        assert!(first.is_some());
        assert_eq!(gate.enter(address("10.0.0.1:1")).err(), Some(Limit::Connections));
        assert_eq!(metrics.limit_hits(Limit::Connections), 1);
        drop(first);
        assert!(gate.enter(address("10.0.0.1:1")).is_ok());
    }
}
