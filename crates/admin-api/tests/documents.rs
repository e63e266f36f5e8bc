//! The documents beside the table of endpoints: each endpoint is documented with its role and its parameters, and each documented
//! endpoint exists.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use sluice_admin_api::endpoints::{Area, Endpoint, Line};

/// The document of all endpoints.
const ADMIN_API: &str = "admin-api.md";

/// The documents that name requests to the admin listener.
const DOCUMENTS: [&str; 6] =
    [ADMIN_API, "operations.md", "configuration.md", "rollouts.md", "failure-modes.md", "operate.md"];

/// Endpoints of the page and of CSDS have chapters of their own.
fn has_section(endpoint: Endpoint) -> bool {
    use Endpoint::*;
    !matches!(
        endpoint,
        ClientStatus | FetchClientStatus | StreamClientStatus | Page | PageRoot | PageBelow | PageAsset
    )
}

fn read(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A request in a document: `GET /clients?state=ERROR`.
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
}

/// The requests in backticks. Clients' polls over REST go to another listener.
fn requests(text: &str) -> impl Iterator<Item = Request<'_>> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter_map(|code| {
        let (method, target) = code.split_once(' ')?;
        let is_poll = target.starts_with("/v3/discovery:") && target != Endpoint::ClientStatus.path();
        let is_request = ["GET", "POST", "DELETE"].contains(&method) && target.starts_with('/') && !is_poll;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        is_request.then_some(Request { method, path, query })
    })
}

fn find(request: &Request<'_>) -> Option<Endpoint> {
    let exact = |endpoint: &&Endpoint| {
        endpoint.line().method == request.method && endpoint.path().replace("{*", "{") == request.path
    };
    let matching = |endpoint: &&Endpoint| endpoint.matches(request.method, request.path);
    Endpoint::ALL.iter().find(exact).or_else(|| Endpoint::ALL.iter().find(matching)).copied()
}

#[test]
fn each_request_in_the_documents_exists_with_its_parameters() {
    for name in DOCUMENTS {
        for request in requests(&read(name)) {
            let endpoint = find(&request);
            assert!(endpoint.is_some(), "{name}: {} {}", request.method, request.path);
            let keys = endpoint.unwrap().line().keys;
            for pair in request.query.split('&').filter(|pair| !pair.is_empty()) {
                let key = pair.split('=').next().unwrap();
                assert!(keys.contains(&key), "{name}: {} {} takes no {key}", request.method, request.path);
            }
        }
    }
}

/// The sections of the document, each with the endpoints in its heading.
fn sections(text: &str) -> Vec<(Vec<Endpoint>, &str)> {
    let sections = text.split("\n## ").skip(1);
    let section = |section| {
        let (heading, body) = str::split_once(section, '\n').unwrap_or((section, ""));
        (requests(heading).filter_map(|request| find(&request)).collect(), body)
    };
    sections.map(section).collect()
}

#[test]
fn each_endpoint_has_a_section_with_its_parameters() {
    let text = read(ADMIN_API);
    let sections = sections(&text);
    let mut faults = Vec::new();
    for endpoint in Endpoint::ALL.iter().copied().filter(|endpoint| has_section(*endpoint)) {
        let Some((_, body)) = sections.iter().find(|(endpoints, _)| endpoints.contains(&endpoint)) else {
            faults.push(format!("{endpoint}: no section in {ADMIN_API}"));
            continue;
        };
        let words: BTreeSet<&str> =
            body.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
        let keys = endpoint.line().keys.iter().filter(|key| !words.contains(**key));
        faults.extend(keys.map(|key| format!("{endpoint}: {ADMIN_API} does not tell of {key}")));
    }
    assert_eq!(faults, Vec::<String>::new());
}

/// The table at the head of the document.
fn table() -> String {
    let row = |endpoint: &Endpoint| {
        let Line { area, keys, .. } = endpoint.line();
        let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
        let role = if matches!(area, Area::Health | Area::Ready) { "any" } else { area.name() };
        let path = endpoint.path().replace("{*", "{");
        format!("| `{} {path}` | {role} | {} |\n", endpoint.line().method, keys.join(", "))
    };
    let rows = Endpoint::ALL.iter().filter(|endpoint| has_section(**endpoint));
    format!("| endpoint | role | parameters |\n|---|---|---|\n{}", rows.map(row).collect::<String>())
}

#[test]
fn the_document_has_the_table() {
    let (text, table) = (read(ADMIN_API), table());
    assert!(text.contains(&table), "{ADMIN_API} lacks this table:\n{table}");
}

/// The rows of roles in the document of the configuration.
#[test]
fn each_endpoint_is_in_the_row_of_its_role() {
    let text = read("configuration.md");
    let row = |area: Area| {
        let name = if matches!(area, Area::Health | Area::Ready) { "any" } else { area.name() };
        text.lines().find(|line| line.starts_with(&format!("| {name} | `"))).unwrap_or_default()
    };
    for endpoint in Endpoint::ALL.iter().filter(|endpoint| has_section(**endpoint)) {
        let Line { method, area, .. } = endpoint.line();
        let path = endpoint.path().replace("{*", "{");
        // Methods other than GET are named.
        let named = if method == "GET" { format!("{path}`") } else { format!("`{method} {path}`") };
        assert!(
            row(area).contains(&named),
            "docs/configuration.md: the role {} opens {endpoint}",
            area.name()
        );
    }
}
