//! Sockets from a predecessor or a supervisor, until a listener takes a socket.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use socket2::SockRef;

use crate::config::Address;
use crate::server;

#[derive(Default)]
pub(in crate::app) struct AdoptedConnections(Vec<PooledSocket>);

struct PooledSocket {
    name: String,
    /// The address in the predecessor's configuration; `None` from a supervisor.
    address: Option<String>,
    socket: OwnedFd,
    is_lent: bool,
}

impl AdoptedConnections {
    pub fn add(&mut self, name: String, address: Option<String>, socket: OwnedFd, is_lent: bool) {
        self.0.push(PooledSocket { name, address, socket, is_lent });
    }

    /// The listener of a socket here; `None` if there is no socket for it. A socket of a predecessor fits by
    /// the address, a socket of a supervisor by the name of the listener, too.
    pub fn take(&mut self, name: &str, address: &Address) -> Option<std::io::Result<server::Listener>> {
        let text = address.to_string();
        let fits = |socket: &PooledSocket| {
            let is_named = socket.name == name;
            let is_same = socket.address.as_ref().is_some_and(|configured| is_named && *configured == text);
            is_same || socket.is_at(address) || (socket.is_lent && is_named)
        };
        let PooledSocket { socket, is_lent, .. } = self.0.remove(self.0.iter().position(fits)?);
        Some(match address {
            Address::Tcp(_) => server::Listener::adopt_tcp(name, socket),
            Address::Unix { path, mode } => {
                let bound = path_of(&socket).unwrap_or_else(|| path.clone());
                server::Listener::adopt_unix(name, &bound, Some(*mode), socket, is_lent)
            }
        })
    }

    /// The names of a supervisor's sockets without a listener.
    pub fn unwanted(&self) -> Vec<&str> {
        self.0
            .iter()
            .filter(|socket| socket.is_lent && socket.address.is_none())
            .map(|socket| &*socket.name)
            .collect()
    }
}

impl PooledSocket {
    fn is_at(&self, address: &Address) -> bool {
        match address {
            Address::Tcp(address) => {
                let bound = SockRef::from(&self.socket).local_addr().ok().and_then(|bound| bound.as_socket());
                bound == Some(*address)
            }
            Address::Unix { path, .. } => path_of(&self.socket).as_ref() == Some(path),
        }
    }
}

fn path_of(socket: &OwnedFd) -> Option<PathBuf> {
    let bound = SockRef::from(socket).local_addr().ok()?;
    bound.as_pathname().map(Path::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn tcp() -> (OwnedFd, Address) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        (socket.into(), Address::Tcp(address))
    }

    #[tokio::test]
    async fn hnd_2_a_listener_finds_its_socket_by_address_whatever_its_name() {
        let (mut pool, (one, first), (other, second)) = (AdoptedConnections::default(), tcp(), tcp());
        pool.add("a".into(), Some(first.to_string()), one, false);
        pool.add("b".into(), Some("127.0.0.1:0".into()), other, false);
        let elsewhere = Address::Tcp("127.0.0.1:1".parse().unwrap());
        assert!(pool.take("a", &elsewhere).is_none(), "a moved listener binds anew");
        assert!(pool.take("renamed", &first).unwrap().is_ok());
        assert!(pool.take("renamed", &first).is_none(), "once");
        // The kernel chose the port.
        assert!(pool.take("b", &Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap().is_ok());
        let _ = second;
    }

    #[tokio::test]
    async fn hnd_6_a_lent_socket_is_found_by_its_name() {
        let mut pool = AdoptedConnections::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        pool.add("xds".into(), None, tcp().0, true);
        pool.add("local".into(), None, UnixListener::bind(&path).unwrap().into(), true);
        pool.add("typo".into(), None, tcp().0, true);
        assert!(pool.take("xds", &Address::Tcp("0.0.0.0:15010".parse().unwrap())).unwrap().is_ok());
        let address = Address::Unix { path: path.clone(), mode: 0o600 };
        assert!(pool.take("local", &address).unwrap().is_ok());
        assert!(path.exists(), "the file is the supervisor's");
        assert_eq!(pool.unwanted(), ["typo"]);
    }
}
