//! A look at all files with certificates, as the start would read them.

use super::{servers, tls};
use crate::config::Config;

/// Reads all certificate files once, as the start does.
///
/// # Errors
/// One line for each place with a file that cannot be used, beginning with the key.
pub fn check_certificates(config: &Config) -> Result<(), Vec<String>> {
    let faults: Vec<String> =
        servers::faults(&config.servers).into_iter().chain(tls::faults(config)).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}
