//! The check of the `Host` header (ADM-2). Otherwise a web page could point its own name at this listener,
//! and read the answers.

use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::state::Admin;

/// Refuses a request to a name that public DNS might resolve.
pub(super) async fn check(Shared(admin): Shared<Admin>, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    // With both an authority and a header, the authority counts.
    let host = request.uri().authority().map(|authority| authority.as_str()).or(header);
    if host.is_some_and(|host| is_ours(host, &admin.settings.get().hosts)) {
        return next.run(request).await;
    }
    let text = "unknown Host: use an IP address or localhost, or add the name to admin.hosts\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Whether no public DNS name can match: the host is an IP address, `localhost` or a name below it, or a name
/// from the configuration.
fn is_ours(host: &str, named: &[String]) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
            return is_address && port.strip_prefix(':').map_or(port.is_empty(), is_port);
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if !port.is_none_or(is_port) {
        return false;
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.parse::<std::net::Ipv4Addr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || named.contains(&name)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn adm_2_only_hosts_outside_of_public_dns_are_answered() {
        let named = ["admin.corp.example".to_owned()];
        let ours = [
            "127.0.0.1:19000",
            "10.1.2.3",
            "[::1]:19000",
            "[fe80::1]",
            "localhost",
            "LocalHost:80",
            "localhost.",
            "sluice.localhost:19000",
            "Admin.Corp.Example:19000",
        ];
        for host in ours {
            assert!(is_ours(host, &named), "{host}");
        }
        let foreign = [
            "evil.example",
            "evil.example:19000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "",
            "[evil.example]",
            "[::1].evil.example",
            "127.0.0.1:80.evil.example",
            "::1",
            "localhost..",
        ];
        for host in foreign {
            assert!(!is_ours(host, &named), "{host}");
        }
    }
}
