//! The addresses of relays, as operators name them (CMD-1).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tokio::net::lookup_host;

/// An address in an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    /// One relay, at the first of the addresses that can be connected to.
    Host(String),
    /// A relay at every address of the name.
    Every(String),
    Unix(PathBuf),
}

/// One relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The relay in the output.
    pub label: String,
    /// The name that its certificate must have, unless another is given.
    pub name: String,
    pub place: RelayPlace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RelayPlace {
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
    /// The name could not be resolved.
    Nowhere(String),
}

const FORMS: &str = "expected host:port, unix:PATH or dns:///host:port";

/// The relays at an address.
///
/// # Errors
/// The text is no address.
pub(super) async fn relays_at(text: &str) -> Result<Vec<Target>, String> {
    let (host, is_every) = match parse(text)? {
        Named::Unix(path) => {
            let place = RelayPlace::Unix(path);
            return Ok(vec![Target { label: text.to_owned(), name: "localhost".to_owned(), place }]);
        }
        Named::Host(host) => (host, false),
        Named::Every(host) => (host, true),
    };
    let (name, _) = split(&host).ok_or(FORMS)?;
    let name = name.to_owned();
    let relay = |label: String, place| Target { label, name: name.clone(), place };
    let addresses: Result<Vec<SocketAddr>, _> = lookup_host(&host).await.map(Iterator::collect);
    Ok(match addresses {
        Ok(addresses) if is_every && !addresses.is_empty() => {
            let mut addresses = addresses;
            addresses.sort_unstable();
            addresses.dedup();
            addresses.into_iter().map(|at| relay(at.to_string(), RelayPlace::Tcp(vec![at]))).collect()
        }
        Ok(addresses) if !addresses.is_empty() => vec![relay(text.to_owned(), RelayPlace::Tcp(addresses))],
        Ok(_) => vec![relay(text.to_owned(), RelayPlace::Nowhere("the name has no address".to_owned()))],
        Err(error) => vec![relay(text.to_owned(), RelayPlace::Nowhere(error.to_string()))],
    })
}

fn parse(text: &str) -> Result<Named, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.is_empty() { Err(FORMS.to_owned()) } else { Ok(Named::Unix(path.into())) };
    }
    let (host, is_every) = match text.strip_prefix("dns:///") {
        Some(host) => (host, true),
        None => (text, false),
    };
    let is_valid = split(host).is_some_and(|(name, port)| is_host(name) && port.parse::<u16>().is_ok());
    match (is_valid, is_every) {
        (false, _) => Err(FORMS.to_owned()),
        (true, false) => Ok(Named::Host(host.to_owned())),
        (true, true) => Ok(Named::Every(host.to_owned())),
    }
}

/// Host and port; an IPv6 address without its brackets.
fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok().then_some((address, port)),
        None => (!host.contains(':')).then_some((host, port)),
    }
}

fn is_host(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    name.parse::<IpAddr>().is_ok() || (!name.is_empty() && name.bytes().all(is_letter))
}

impl Target {
    /// Whether bytes on the way to the relay stay on this host.
    pub(super) fn is_local(&self) -> bool {
        match &self.place {
            RelayPlace::Tcp(addresses) => addresses.iter().all(|at| at.ip().to_canonical().is_loopback()),
            RelayPlace::Unix(_) | RelayPlace::Nowhere(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_three_forms() {
        assert_eq!(parse("relay-1:19000"), Ok(Named::Host("relay-1:19000".into())));
        assert_eq!(parse("[::1]:19000"), Ok(Named::Host("[::1]:19000".into())));
        assert_eq!(parse("dns:///relays:19000"), Ok(Named::Every("relays:19000".into())));
        assert_eq!(parse("unix:/run/a.sock"), Ok(Named::Unix("/run/a.sock".into())));
        assert_eq!(parse("unix:///run/a.sock"), Ok(Named::Unix("/run/a.sock".into())));
        for text in ["", "relay", "relay:", "relay:70000", "::1:19000", "unix:", "http://relay:1", "a b:1"] {
            assert_eq!(parse(text), Err(FORMS.to_owned()), "{text}");
        }
    }

    #[tokio::test]
    async fn cmd_1_dns_gives_a_relay_for_each_address() {
        let relays = relays_at("dns:///127.0.0.1:19000").await.unwrap();
        let at = "127.0.0.1:19000".parse().unwrap();
        let expected = Target {
            label: "127.0.0.1:19000".into(),
            name: "127.0.0.1".into(),
            place: RelayPlace::Tcp(vec![at]),
        };
        assert_eq!(relays, [expected]);
        assert!(relays[0].is_local());
    }
}
