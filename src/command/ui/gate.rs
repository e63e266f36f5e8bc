//! The check of each request: only a browser on the page itself may read the page and its live streams
//! (PAG-3).
//!
//! Host and web pages are checked as by the admin listener (ADM-2, ADM-3). Otherwise a page from elsewhere
//! could read the relay through this port, with the caller's token.

use std::net::IpAddr;

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method, StatusCode, Uri};
use sluice_admin_api::endpoints::Endpoint;

/// The page and all paths below, and the live streams of the page. All other paths are refused.
const PAGE: &str = Endpoint::PageRoot.path();
const STREAMS: [&str; 2] = [Endpoint::Events.path(), Endpoint::Tail.path()];

/// Browsers add these headers; scripts of pages cannot.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The answer to a refused request.
pub(super) type Refusal = (StatusCode, &'static str);

/// # Errors
/// The status and its reason.
pub(super) fn check(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if ![Method::GET, Method::HEAD].contains(method) {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "the page changes nothing: GET and HEAD only"));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next(), uri.authority()) {
        (Some(host), None, None) => host.to_str().ok(),
        _ => None,
    };
    if !host.is_some_and(is_ours) {
        return Err((StatusCode::MISDIRECTED_REQUEST, "unknown Host: use an IP address or localhost"));
    }
    if !is_of_page(uri.path()) {
        return Err((StatusCode::NOT_FOUND, "only the page is served here: open /ui/"));
    }
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_elsewhere = site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"));
    if is_elsewhere && !is_visit(uri.path(), headers) {
        return Err((StatusCode::FORBIDDEN, "requests of web pages are refused"));
    }
    Ok(())
}

/// Whether no public DNS name can match.
fn is_ours(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_name = name == "localhost" || name.ends_with(".localhost");
    !host.contains('@') && (is_name || address.parse::<IpAddr>().is_ok())
}

/// Paths of the page have plain letters. A server on the way to the relay could decode other letters into
/// another path.
fn is_of_page(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let is_known = path == "/" || path == "/ui" || path.starts_with(PAGE) || STREAMS.contains(&path);
    is_known && path.bytes().all(is_plain) && !path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// A person follows a link to the page. The other site cannot read the answer.
fn is_visit(path: &str, headers: &HeaderMap) -> bool {
    let says = |name: HeaderName, value: &str| headers.get(name).is_some_and(|header| header == value);
    path.starts_with("/ui") && says(FETCH_MODE, "navigate") && says(FETCH_DEST, "document")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let method = method.parse().unwrap();
        check(&method, &uri.parse().unwrap(), &map).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    const OWN: (&str, &str) = ("host", "127.0.0.1:8123");

    #[test]
    fn pag_3_only_the_page_and_its_streams_pass() {
        let paths = [
            "/",
            "/ui",
            "/ui/",
            "/ui/clients/7?type=a%2Fb",
            "/ui/assets/0f/page.css",
            "/events",
            "/tail?client=1",
        ];
        for path in paths {
            assert_eq!((status("GET", path, &[OWN]), status("HEAD", path, &[OWN])), (200, 200), "{path}");
        }
        let others = [
            "/metrics",
            "/clients",
            "/config",
            "/overview",
            "/uix",
            "/events/",
            "/tail/x",
            "/ui/../metrics",
            "/ui/..%2fmetrics",
            "/ui/%2e%2e/metrics",
            "/ui/./x",
            "//evil.example/ui/",
            "/ui/a\\b",
        ];
        for path in others.into_iter().filter(|path| path.parse::<Uri>().is_ok()) {
            assert_eq!(status("GET", path, &[OWN]), 404, "{path}");
        }
        for method in ["POST", "DELETE", "PUT", "OPTIONS", "CONNECT"] {
            assert_eq!(status(method, "/ui/", &[OWN]), 405, "{method}");
        }
    }

    #[test]
    fn adm_2_only_hosts_outside_of_public_dns_pass() {
        for host in
            ["127.0.0.1:1", "localhost:8123", "LOCALHOST", "ui.localhost:80", "[::1]:8123", "10.1.2.3"]
        {
            assert_eq!(status("GET", "/ui/", &[("host", host)]), 200, "{host}");
        }
        let foreign = [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "a@localhost",
            "notlocalhost",
        ];
        for host in foreign {
            assert_eq!(status("GET", "/ui/", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status("GET", "/ui/", &[]), 421);
        assert_eq!(status("GET", "/ui/", &[OWN, OWN]), 421);
        assert_eq!(status("GET", "http://relay.example/ui/", &[OWN]), 421, "no proxy");
    }

    #[test]
    fn adm_3_other_sites_may_only_link_to_the_page() {
        let from = |site, mode, dest, path| {
            let headers = [OWN, ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            status("GET", path, &headers)
        };
        assert_eq!(from("same-origin", "cors", "empty", "/events"), 200);
        assert_eq!(from("none", "navigate", "document", "/ui/"), 200);
        assert_eq!(from("cross-site", "navigate", "document", "/ui/clients"), 200);
        for (mode, dest, path) in [
            ("navigate", "iframe", "/ui/"),
            ("cors", "empty", "/ui/"),
            ("no-cors", "script", "/ui/assets/0f/live.js"),
            ("navigate", "document", "/events"),
        ] {
            for site in ["cross-site", "same-site"] {
                assert_eq!(from(site, mode, dest, path), 403, "{site} {mode} {dest} {path}");
            }
        }
    }
}
