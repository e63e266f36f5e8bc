//! The scenarios of the public suites and of other projects' tests, each written once and run as a table: for
//! every kind of downstream that has the scenario, and for every type. The table of `README.md` lists the
//! scenarios with their rules.

mod checks;
mod envoy;
mod harness;
mod libraries;
mod missing;
mod xds_relay;

use std::sync::Arc;

use futures_util::future::join_all;

use crate::bench::Bench;
use crate::support::{Client, Downstream, Variant, judge};

const SOTW_ADS: Downstream = Downstream::Ads(Variant::Sotw);
const DELTA_ADS: Downstream = Downstream::Ads(Variant::Delta);
const SOTW_PER_TYPE: Downstream = Downstream::PerType(Variant::Sotw);
const DELTA_PER_TYPE: Downstream = Downstream::PerType(Variant::Delta);

/// The columns of the tables.
pub const SOTW: &[Downstream] = &[SOTW_ADS, SOTW_PER_TYPE];
pub const DELTA: &[Downstream] = &[DELTA_ADS, DELTA_PER_TYPE];
pub const ADS: &[Downstream] = &[SOTW_ADS, DELTA_ADS];
pub const STREAMS: &[Downstream] = &[SOTW_ADS, DELTA_ADS, SOTW_PER_TYPE, DELTA_PER_TYPE];
pub const REST: &[Downstream] = &[Downstream::Rest];

pub const ABC: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

/// One row of a table: a kind of downstream and a type. The rows of one kind share a bench, one type after
/// the other.
#[derive(Clone)]
pub struct Row {
    pub bench: Arc<Bench>,
    pub kind: Downstream,
    pub type_url: &'static str,
}

impl Row {
    pub async fn client(&self) -> Client {
        self.bench.client(self.kind, "one").await
    }

    pub fn is_sotw(&self) -> bool {
        self.kind.variant() == Variant::Sotw
    }

    pub fn set(&self, resources: &[(&str, &str)]) {
        self.bench.origin.set_many(self.type_url, resources);
    }

    pub fn remove(&self, name: &str) {
        self.bench.origin.remove(self.type_url, name);
    }

    /// A client that has received these resources after a subscription by name.
    pub async fn holding(&self, resources: &[(&str, &str)]) -> Client {
        self.set(resources);
        let mut client = self.client().await;
        let names: Vec<&str> = resources.iter().map(|(name, _)| *name).collect();
        client.want(self.type_url, &names);
        client.settle(self.type_url, resources).await;
        client
    }

    /// Like [`Self::holding`], by wildcard.
    pub async fn holding_all(&self, resources: &[(&str, &str)]) -> Client {
        self.set(resources);
        let mut client = self.client().await;
        client.want(self.type_url, &["*"]);
        client.settle(self.type_url, resources).await;
        client
    }
}

/// Plays every row, also after a failure, and fails with the names of the failed rows.
pub async fn play<F, Story>(kinds: &[Downstream], types: &[&'static str], story: Story)
where
    F: Future<Output = ()> + Send + 'static,
    Story: Fn(Row) -> F,
{
    let wanted = |kind: &&Downstream| judge::settings().is_none_or(|settings| settings.selects(**kind));
    let columns = kinds.iter().filter(wanted).map(|kind| column(*kind, types, &story));
    let verdicts: Vec<(String, String)> = if judge::settings().is_some() {
        // All rows share one server.
        let mut verdicts = Vec::new();
        for column in columns {
            verdicts.extend(column.await);
        }
        verdicts
    } else {
        join_all(columns).await.concat()
    };
    let is_fault = |verdict: &str| verdict != "pass" && !verdict.starts_with("SKIPPED: ");
    let faults = verdicts.iter().filter(|(_, verdict)| is_fault(verdict));
    let faults: Vec<String> = faults.map(|(row, verdict)| format!("[{row}] {verdict}")).collect();
    assert!(faults.is_empty(), "{} of {} rows failed:\n{}", faults.len(), verdicts.len(), faults.join("\n"));
}

/// The rows of one kind of downstream, each with its verdict.
async fn column<F>(
    kind: Downstream,
    types: &[&'static str],
    story: &impl Fn(Row) -> F,
) -> Vec<(String, String)>
where
    F: Future<Output = ()> + Send + 'static,
{
    let bench = Arc::new(Bench::any().await);
    let mut verdicts = Vec::new();
    for type_url in types {
        let row = Row { bench: bench.clone(), kind, type_url };
        let short = type_url.rsplit('.').next().unwrap_or(type_url);
        let name = format!("{}, {short}", kind.label());
        let verdict = tokio::spawn(story(row)).await.map_or_else(reason, |()| "pass".to_owned());
        // The report of a judged server reads these lines.
        judge::say(&format!("ROW {name}: {}", verdict.lines().collect::<Vec<_>>().join(" ")));
        verdicts.push((name, verdict));
    }
    verdicts
}

fn reason(error: tokio::task::JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else { return "cancelled".to_owned() };
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
