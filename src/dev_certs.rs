//! `sluice dev-certs`: certificates for trying out TLS without a certificate authority.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::telemetry::wall_now;
use crate::trust::issue::{Authority, Issued, Leaf};
use sluice_identity::SpiffeId;

/// Long enough for an afternoon of trying out, and too short for production.
const LIFE: Duration = Duration::from_secs(30 * 86_400);

/// The common name of the authority.
const AUTHORITY: &str = "sluice dev-certs";

/// The names of the relay, besides those asked for.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The files could not be made.
#[derive(Debug)]
pub enum DevCertsError {
    Io(io::Error),
    /// A name that no certificate can have.
    Name(String),
}

impl From<io::Error> for DevCertsError {
    fn from(error: io::Error) -> DevCertsError {
        DevCertsError::Io(error)
    }
}

/// Writes an authority and two pairs, and returns the files with their purposes. The key of the authority is
/// not written, so that each call makes a new authority. With `keeps_authority`, the key is written, and a
/// later call issues new pairs by the same authority.
///
/// # Errors
/// A name or the key of the authority is malformed, or the directory cannot be read or written.
pub fn write(
    directory: &Path,
    hosts: &[String],
    client_id: &str,
    keeps_authority: bool,
) -> Result<Vec<(PathBuf, String)>, DevCertsError> {
    let client = SpiffeId::parse(client_id)
        .map_err(|error| DevCertsError::Name(format!("--client-id {client_id}: {error}")))?;
    let relay = format!("spiffe://{}/relay", client.trust_domain());
    let names: Vec<&str> = LOCAL.into_iter().chain(hosts.iter().map(String::as_str)).collect();
    let now = wall_now();
    let failed = |error: rcgen::Error| DevCertsError::Name(format!("cannot make a certificate: {error}"));
    fs::create_dir_all(directory)?;
    let (ca, ca_key) = (directory.join("ca.crt"), directory.join("ca.key"));
    let authority = match keeps_authority && ca_key.exists() {
        true => Authority::restore(AUTHORITY, fs::read_to_string(&ca)?, &fs::read_to_string(&ca_key)?)
            .map_err(|error| DevCertsError::Name(format!("{}: {error}", ca_key.display())))?,
        false => Authority::new(AUTHORITY, LIFE, now).map_err(failed)?,
    };
    let server = Leaf { uris: &[&relay], hosts: &names, is_server: true, is_client: true };
    let server = authority.issue(&server, LIFE, now).map_err(failed)?;
    let leaf = Leaf { uris: &[client_id], is_client: true, ..Leaf::default() };
    let leaf = authority.issue(&leaf, LIFE, now).map_err(failed)?;

    let mut files = Vec::new();
    if keeps_authority {
        put(&ca_key, &authority.private_key(), 0o600)?;
        files.push((ca_key, "the private key of the authority".to_owned()));
    }
    put(&ca, authority.pem(), 0o644)?;
    files.push((ca, format!("the authority of both; trust domain {}", client.trust_domain())));
    for (name, pair, about) in [
        ("relay", server, format!("the relay: {}", names.join(", "))),
        ("client", leaf, format!("a client: {client_id}")),
    ] {
        put_pair(&directory.join(name), &pair)?;
        files.push((directory.join(name).join("tls.crt"), about));
        files.push((directory.join(name).join("tls.key"), "its private key".to_owned()));
    }
    Ok(files)
}

fn put_pair(directory: &Path, pair: &Issued) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    put(&directory.join("tls.key"), &pair.private_key, 0o600)?;
    put(&directory.join("tls.crt"), &pair.certificate, 0o644)
}

/// Replaces a file in one step, so that a running relay never sees half of it.
fn put(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(new, path)
}
