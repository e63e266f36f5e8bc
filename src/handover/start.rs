//! The start of a successor: the command line, and the new end of the socketpair.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::net::sockopt::{socket_domain, socket_peercred, socket_type};
use rustix::net::{AddressFamily, SocketType};

use super::Channel;

/// Marks the standard input of the successor as the socketpair.
const MARK: &str = "SLUICE_HANDOVER";

/// Variables of systemd for a single process: the successor gets sockets from the predecessor.
const OF_ONE_PROCESS: [&str; 5] =
    ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_FDS_FIRST_FD", "WATCHDOG_PID"];

/// The command line of the process, also for the successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The path of the start, with links: an upgrade replaces the file or the link there.
    pub binary: PathBuf,
    pub arguments: Vec<OsString>,
}

impl Invocation {
    /// Must be called at the start, before anything changes the working directory or replaces the file.
    ///
    /// # Errors
    /// The executable cannot be found.
    pub fn of_this_process() -> io::Result<Invocation> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().map(PathBuf::from).unwrap_or_default();
        let binary = match name.components().count() {
            0 => std::env::current_exe()?,
            1 if !name.is_absolute() && !name.starts_with(".") => {
                on_path(&name).map_or_else(std::env::current_exe, Ok)?
            }
            _ => std::path::absolute(name)?,
        };
        Ok(Invocation { binary, arguments: arguments.collect() })
    }

    /// Starts a successor. The other end of the socketpair becomes the standard input; besides, only the
    /// output is inherited.
    ///
    /// # Errors
    /// The executable cannot be started.
    pub fn start(&self, binary: &Path) -> io::Result<(Child, Channel)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(binary);
        command.args(&self.arguments).env(MARK, "1").stdin(OwnedFd::from(theirs));
        for name in OF_ONE_PROCESS {
            command.env_remove(name);
        }
        Ok((command.spawn()?, Channel::new(ours)))
    }
}

/// The executable of a shell.
fn on_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The channel to the predecessor; `None` if there is no predecessor. Must be called at the start, once.
///
/// # Errors
/// The environment promises a predecessor, and the standard input is no socket of the parent.
pub fn predecessor() -> io::Result<Option<Channel>> {
    if std::env::var_os(MARK).is_none() {
        return Ok(None);
    }
    let stdin = io::stdin();
    let is_parent = || {
        let (domain, kind) = (socket_domain(stdin.as_fd())?, socket_type(stdin.as_fd())?);
        let peer = socket_peercred(stdin.as_fd())?.pid;
        let is_pair = domain == AddressFamily::UNIX && kind == SocketType::STREAM;
        Ok::<_, rustix::io::Errno>(is_pair && rustix::process::getppid() == Some(peer))
    };
    if !is_parent().unwrap_or(false) {
        let text = format!(
            "{MARK} is set, but the standard input is no socket of the process that started this one"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let socket = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    // The end of the predecessor must show even if the process starts others.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Some(Channel::new(socket)))
}
