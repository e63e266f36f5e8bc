//! The supervisor of the process, systemd: sockets for the relay, and the state of the relay (HND-6).

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use listenfd::ListenFd;

/// A full queue must not hold the relay up.
const SEND_MAX: Duration = Duration::from_secs(1);

/// The supervisor, if the environment has the address of a socket.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    ///
    /// # Errors
    /// The address is none.
    pub fn of_environment() -> io::Result<Supervisor> {
        let Some(address) = env::var_os("NOTIFY_SOCKET") else { return Ok(Supervisor::default()) };
        let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_watched = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_watched).map(Duration::from_micros);
        let address = match address.as_encoded_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&address)?,
        };
        Supervisor::at(address, watchdog)
    }

    fn at(address: SocketAddr, watchdog: Option<Duration>) -> io::Result<Supervisor> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_MAX))?;
        Ok(Supervisor { socket: Some((socket, address)), watchdog })
    }

    /// Lines like `READY=1`. Without a supervisor nothing happens.
    ///
    /// # Errors
    /// The supervisor does not listen.
    pub fn tell(&self, lines: &str) -> io::Result<()> {
        match &self.socket {
            Some((socket, address)) => socket.send_to_addr(lines.as_bytes(), address).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The interval in which the supervisor wants a sign of life: half the time of the watchdog. `None`:
    /// there is no watchdog.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2).filter(|time| !time.is_zero())
    }
}

/// A socket from the supervisor.
#[derive(Debug)]
pub struct LentSocket {
    /// `FileDescriptorName=` of the unit; by default the name of the unit.
    pub name: String,
    pub socket: OwnedFd,
}

/// The sockets of `LISTEN_FDS`. Must be called at the start, once.
///
/// # Errors
/// A descriptor of another kind than a stream socket, by place and name.
pub fn lent_sockets() -> io::Result<Vec<LentSocket>> {
    let mut passed = ListenFd::from_env();
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (0..passed.len())
        .map(|index| {
            let name = names.next().unwrap_or_default().to_owned();
            let taken = match passed.take_unix_listener(index) {
                Ok(unix) => unix.map(OwnedFd::from),
                Err(_) => passed
                    .take_tcp_listener(index)
                    .map_err(|error| {
                        io::Error::new(
                            error.kind(),
                            format!("LISTEN_FDS: descriptor {index} ({name}): {error}"),
                        )
                    })?
                    .map(OwnedFd::from),
            };
            let socket = taken.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            Ok(LentSocket { name, socket })
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hnd_6_the_supervisor_is_told_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("sluice-test-{}", std::process::id());
        let addresses =
            [SocketAddr::from_pathname(&path).unwrap(), SocketAddr::from_abstract_name(name).unwrap()];
        for address in addresses {
            let stand_in = UnixDatagram::bind_addr(&address).unwrap();
            Supervisor::at(address, None).unwrap().tell("READY=1").unwrap();
            let mut line = [0; 64];
            let length = stand_in.recv(&mut line).unwrap();
            assert_eq!(&line[..length], b"READY=1");
        }
        Supervisor::default().tell("READY=1").unwrap();
    }

    #[test]
    fn hnd_6_signs_of_life_come_twice_in_the_time_of_the_watchdog() {
        let of = |time| Supervisor { socket: None, watchdog: time }.watchdog();
        assert_eq!(of(Some(Duration::from_secs(10))), Some(Duration::from_secs(5)));
        assert_eq!(of(Some(Duration::ZERO)), None);
        assert_eq!(of(None), None);
    }
}
