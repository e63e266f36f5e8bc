//! A relay process under test: its configuration, its start, its end.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The maximum time for the start of a relay, and for its end.
const START: Duration = Duration::from_secs(15);
const END: Duration = Duration::from_secs(15);

/// The interval between checks.
const POLL: Duration = Duration::from_millis(50);

/// The number of log bytes shown after a failure.
const LOG_TAIL: usize = 2000;

pub struct Relay {
    child: Child,
    /// The address of the ADS listener.
    pub address: SocketAddr,
    directory: TempDir,
}

impl Relay {
    /// Starts `sluice serve` downstream of a control plane, and waits until the relay is ready.
    pub fn start(sluice: &Path, control_plane: SocketAddr) -> Result<Relay> {
        let directory = tempfile::Builder::new().prefix("sluice-load-").tempdir()?;
        let (address, admin) = (free_address()?, free_address()?);
        let config = directory.path().join("sluice.yaml");
        fs::write(&config, configuration(control_plane, address, admin))?;
        let log = File::create(directory.path().join("log"))?;
        let child = Command::new(sluice)
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", sluice.display()))?;
        let mut relay = Relay { child, address, directory };
        match relay.await_ready(admin) {
            Ok(()) => Ok(relay),
            Err(error) => bail!("{error:#}; its log ends with:\n{}", relay.log_tail()),
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Stops the relay with SIGTERM; an error if the relay has to be killed or exits with a failure.
    pub fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM).context("the relay has ended before its time")?;
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("the relay ended with {status}; its log ends with:\n{}", self.log_tail());
            }
            sleep(POLL);
        }
        bail!("the relay did not end within {} s of SIGTERM and was killed", END.as_secs());
    }

    fn await_ready(&mut self, admin: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("the relay ended with {status} before it was ready");
            }
            if is_ready(admin) {
                return Ok(());
            }
            sleep(POLL);
        }
        bail!("the relay was not ready within {} s", START.as_secs());
    }

    /// The end of the relay's output.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL)..]).into_owned()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(control_plane: SocketAddr, address: SocketAddr, admin: SocketAddr) -> String {
    format!(
        r#"xds_servers: [ {{ server_uri: "{control_plane}", channel_creds: [ {{ type: insecure }} ] }} ]
listeners: [ {{ name: main, address: "{address}" }} ]
admin: {{ address: "{admin}" }}
"#
    )
}

/// An address without a listener. Each call has a loopback address of its own, so that nobody else takes the port
/// before it is used. Only the first call looks for a free port: later, children of this process could have a copy of the
/// socket that looked, until their exec.
pub fn free_address() -> Result<SocketAddr> {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    static PORT: OnceLock<u16> = OnceLock::new();
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high | 0x80, low, CALLS.fetch_add(1, Ordering::Relaxed));
    let port = match PORT.get() {
        Some(port) => *port,
        None => {
            let found = TcpListener::bind((address, 0))?.local_addr()?.port();
            *PORT.get_or_init(|| found)
        }
    };
    Ok(SocketAddr::from((address, port)))
}

/// Whether `GET /ready` answers 200.
fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&admin, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(socket, "GET /ready HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
        let mut status_line = [0; 12];
        socket.read_exact(&mut status_line)?;
        if status_line.starts_with(b"HTTP/1.") && status_line.ends_with(b" 200") {
            return Ok(true);
        }
        Err(ErrorKind::Other.into())
    };
    ask().unwrap_or(false)
}
