//! The page of all clients: the endpoint `/clients`, one row a stream.

use askama::Template;

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Classes, Mark, worst};
use super::text::age;
use crate::admin::client;
use crate::admin::item::variant_name;
use crate::admin::query::ClientsQuery;
use crate::admin::types;
use crate::driver::api::status::{ConfigStatus, SessionStatus, SessionTypeStatus, Why};

/// Types in a row. The client's page has all of them.
const TYPES_MAX: usize = 3;

#[derive(Template)]
#[template(path = "clients.html")]
struct ClientsPage {
    frame: Frame,
    filter: Filter,
    rows: Vec<ClientRow>,
    next: Option<String>,
}

struct ClientRow {
    id: u64,
    node: String,
    cluster: String,
    peer: String,
    variant: &'static str,
    open: String,
    /// The worst state, and its age.
    state: Option<(Mark, String)>,
    /// The matching types that are not in sync.
    behind: Vec<(String, &'static str, String)>,
    more: usize,
    types: usize,
    server: String,
    class: Classes,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/clients")?;
    let (query, page) = ClientsQuery::parse(&filter.uri(), ask.headers)?;
    types::check(ask.admin, query.type_name.as_deref()).await?;
    let listed = client::gather(ask.admin, &query, &page, ask.now).await?;
    let rows: Vec<ClientRow> =
        listed.sessions.iter().filter_map(|session| row(session, &query, ask)).collect();
    let next = listed.next.map(|cursor| filter.next(&cursor, rows.len()));
    let words = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let filter = filter
        .field("q", "Node, cluster or address", Vec::new())
        .field("type", "Type", ask.type_names())
        .field("state", "State", words(&ConfigStatus::ALL.map(ConfigStatus::name)))
        .field("why", "Why", words(&Why::ALL.map(Why::name)))
        .field("sort", "Order", words(&["behind", "opened"]));
    Ok(ClientsPage { frame: Frame::new(ask, "clients", "Clients"), filter, rows, next }.render()?)
}

fn row(session: &SessionStatus, query: &ClientsQuery, ask: &Ask<'_>) -> Option<ClientRow> {
    let types = query.matching(session, ask.now)?;
    let mut behind: Vec<&SessionTypeStatus> =
        types.iter().copied().filter(|status| status.state != ConfigStatus::Synced).collect();
    behind.sort_by_key(|status| status.since);
    let texts = |text: fn(&SessionTypeStatus) -> Option<&str>| {
        let mut texts: Vec<&str> = types.iter().filter_map(|status| text(status)).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.join(", ")
    };
    Some(ClientRow {
        id: session.id,
        node: session.node_id.to_string(),
        cluster: session.node_cluster.to_string(),
        peer: session.peer.map_or_else(|| "unix socket".to_owned(), |peer| peer.to_string()),
        variant: variant_name(session.kind.variant),
        open: age(session.opened_at, ask.now),
        state: worst(&types).map(|status| (Mark::of_type(status), age(status.since, ask.now))),
        more: behind.len().saturating_sub(TYPES_MAX),
        behind: behind
            .into_iter()
            .take(TYPES_MAX)
            .map(|status| {
                (
                    status.type_url.short().to_owned(),
                    status.why.map_or("", Why::name),
                    age(status.since, ask.now),
                )
            })
            .collect(),
        types: types.len(),
        server: texts(|status| status.server.as_deref()),
        class: Classes::of(&texts(|status| status.class.as_deref())),
    })
}
