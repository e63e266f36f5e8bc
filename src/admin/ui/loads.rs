//! The page of the load that clients report: the endpoints `/load` and `/load/classes`.

use askama::Template;
use sluice_admin_api::loads::{ClassLoad, FinishedRequests, LoadRow};

use super::filter::{Filter, ROWS_MAX};
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Mark, Shape};
use super::text::count;
use crate::admin::loads::{self, LoadQuery};

#[derive(Template)]
#[template(path = "load.html")]
struct LoadPage {
    frame: Frame,
    filter: Filter,
    classes: Vec<ClassRow>,
    rows: Vec<RequestRow>,
    /// Not all rows are shown.
    has_more: bool,
}

/// A class on its way to a control plane.
struct ClassRow {
    class: String,
    server: String,
    state: Mark,
    reporters: String,
    wish: String,
    read: String,
    delivered: String,
    in_doubt: String,
    left_out: String,
    note: String,
}

struct RequestRow {
    row: LoadRow,
    all: FinishedRequests,
}

impl RequestRow {
    fn key(&self) -> String {
        [&*self.row.server, &self.row.class, &self.row.cluster, &self.row.locality()].join(" ")
    }

    /// `25.0 %`, or nothing without requests.
    fn share(&self, requests: &FinishedRequests) -> String {
        requests.error_share.map(|share| format!("{:.1} %", share * 100.0)).unwrap_or_default()
    }
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/load")?;
    let (query, _) = LoadQuery::parse(&filter.uri(), ask.headers)?;
    let mut rows = loads::worst(ask.admin, &query, ROWS_MAX + 1).await;
    let has_more = rows.len() > ROWS_MAX;
    rows.truncate(ROWS_MAX);
    let classes = loads::gather(ask.admin);
    let mut servers: Vec<String> = classes.iter().map(|load| load.server.clone()).collect();
    servers.sort_unstable();
    servers.dedup();
    let filter = filter.field("cluster", "Cluster", Vec::new()).field("server", "Server", servers).field(
        "class",
        "Class",
        Vec::new(),
    );
    let page = LoadPage {
        frame: Frame::new(ask, "load", "Load"),
        filter,
        classes: classes.into_iter().take(ROWS_MAX).map(class_row).collect(),
        rows: rows.into_iter().map(|row| RequestRow { all: row.requests(), row }).collect(),
        has_more,
    };
    Ok(page.render()?)
}

fn class_row(load: ClassLoad) -> ClassRow {
    let fate = |requests: u64| count(requests as usize);
    let every = load.interval_seconds.map(|seconds| format!(" every {seconds} s")).unwrap_or_default();
    let note = match (&load.error, load.no_service) {
        (_, true) => "The control plane takes no load reports.".to_owned(),
        (Some(error), false) => format!("Last error: {error}"),
        (None, false) => String::new(),
    };
    ClassRow {
        state: mark(&load),
        reporters: count(load.reporters),
        wish: load.clusters.clone().map(|clusters| clusters + &every).unwrap_or_default(),
        read: fate(load.requests.read),
        delivered: fate(load.requests.delivered),
        in_doubt: fate(load.requests.in_doubt),
        left_out: fate(load.requests.left_out),
        class: load.class,
        server: load.server,
        note,
    }
}

fn mark(load: &ClassLoad) -> Mark {
    let words = ["open", "local", "idle", "opening", "ending", "ended", "waiting"];
    let word = words.into_iter().find(|word| *word == load.state).unwrap_or_default();
    let look = match word {
        "open" | "local" => Shape::Good,
        "waiting" => Shape::Bad,
        _ => Shape::None,
    };
    Mark { look, word, why: load.no_service.then_some("no_service") }
}
