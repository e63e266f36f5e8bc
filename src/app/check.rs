//! A look at all files with certificates and tokens, as the start would read them.

use super::{admin, servers, tls};
use crate::config::Config;

/// Reads all files with certificates and tokens once, as the start does.
///
/// # Errors
/// One line for each place with a file that cannot be used, beginning with the key.
pub fn check_certificates(config: &Config) -> Result<(), Vec<String>> {
    let faults = [servers::faults(&config.servers), tls::faults(config), admin::faults(config)].concat();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}
