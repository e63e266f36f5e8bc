//! `sluice get`: lists of the API, from all relays, in each form of output.
//!
//! [`view`]: the lists, each with its columns. `watch`: changes of a list.

pub(super) mod view;
mod watch;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_admin_api::lists::{Cursor, Listed, PageEnd};
use sluice_admin_api::loads::LoadRow;

use super::address::Target;
use super::arguments::{OutputFormat, Show};
use super::console::Console;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Column, Kind, Table};
use super::text::safe;
use super::typed::{Typed, jsons};
use super::yaml::yaml;
use sluice_text::encoded;
use view::View;

/// The pages that one list may have. Without a bound, a relay could keep a command going for ever.
const PAGES_MAX: usize = 10_000;

/// The items of one page. A relay refuses a greater limit.
const PAGE_MAX: usize = 1_000;

/// A list to show.
pub(super) struct List<T: 'static> {
    pub view: &'static View<T>,
    /// The value of the variable of the endpoint's path, if it has one.
    pub value: Option<String>,
    /// The filters.
    pub query: Vec<(&'static str, String)>,
    pub limit: Option<usize>,
}

impl<T> List<T> {
    /// The whole list.
    pub fn of_all(view: &'static View<T>) -> List<T> {
        List { view, value: None, query: Vec::new(), limit: None }
    }

    fn base(&self) -> String {
        let value = self.value.as_deref().map(encoded);
        let values: Vec<&str> = value.as_deref().into_iter().collect();
        self.view.endpoint.path_of(&values)
    }
}

/// The items of all relays.
#[derive(Debug)]
pub(super) struct Items<T> {
    pub items: Vec<Typed<T>>,
    /// There may be more than `--limit` items.
    pub is_truncated: bool,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { items: Vec::new(), is_truncated: false }
    }
}

pub(super) async fn show<T: DeserializeOwned>(
    relays: &Relays,
    list: &List<T>,
    show: Show,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    if show.watch {
        return watch::watch(relays, list, show, console).await;
    }
    let (items, outcome) = gather(relays, list, console).await?;
    write(&items, list, relays.are_several(), show, console)?;
    Ok(outcome)
}

/// Asks all relays for the list.
async fn gather<T: DeserializeOwned>(
    relays: &Relays,
    list: &List<T>,
    console: &mut Console<'_>,
) -> Result<(Items<T>, Outcome), Failure> {
    let answers =
        relays.all(async |caller: &Caller, relay: &Target| fetch(caller, relay, list, None).await).await;
    let outcome = answers.report(console.err)?;
    let mut all = Items::default();
    for items in answers.values() {
        all.is_truncated |= items.is_truncated;
        all.items.extend(items.items);
    }
    Ok((all, outcome))
}

/// The list of one relay, page by page.
pub(super) async fn fetch<T: DeserializeOwned>(
    caller: &Caller,
    relay: &Target,
    list: &List<T>,
    after: Option<String>,
) -> Result<Items<T>, Missing> {
    let mut all = Items::default();
    let mut after = after;
    for _ in 0..PAGES_MAX {
        let limit = list.limit.map(|limit| (limit - all.items.len()).min(PAGE_MAX).to_string());
        let page = [("after", after.take()), ("limit", limit)];
        let page = page.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let path = path(&list.base(), list.query.iter().cloned().chain(page));
        let mut answer = caller.json(relay, &Method::GET, &path).await?;
        all.items.extend(take_items(&mut answer, list.view.key, relay)?);
        let end = PageEnd::deserialize(&answer).unwrap_or_default();
        after = end.next.map(Cursor::into_parameter);
        let is_full = list.limit.is_some_and(|limit| all.items.len() >= limit);
        all.is_truncated = end.truncated || after.is_some();
        if is_full || after.is_none() {
            return Ok(all);
        }
    }
    Ok(all)
}

/// Takes the items out of a list.
pub(super) fn take_items<T: DeserializeOwned>(
    answer: &mut Value,
    key: &str,
    relay: &Target,
) -> Result<Vec<Typed<T>>, Missing> {
    match answer.get_mut(key).map(Value::take) {
        Some(Value::Array(items)) => {
            let typed = |item| Typed::new(item, &relay.label).map_err(Missing::Silent);
            items.into_iter().map(typed).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// A path with a query.
pub(super) fn path(base: &str, query: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut path = base.to_owned();
    for (index, (key, value)) in query.into_iter().enumerate() {
        path.push(if index == 0 { '?' } else { '&' });
        path.push_str(key);
        path.push('=');
        path.push_str(&encoded(&value));
    }
    path
}

pub(super) fn write<T>(
    items: &Items<T>,
    list: &List<T>,
    are_several: bool,
    show: Show,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let view = list.view;
    match show.format {
        OutputFormat::Json | OutputFormat::Yaml => {
            let all = json!({
                view.key: jsons(&items.items),
                "count": items.items.len(),
                "truncated": items.is_truncated,
            });
            match show.format {
                OutputFormat::Yaml => console.out.write_all(yaml(&all).as_bytes())?,
                _ => console.json(&all)?,
            }
        }
        OutputFormat::Name => {
            for name in items.items.iter().filter_map(|item| (view.name)(&item.value)) {
                writeln!(console.out, "{}", safe(&name))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let is_wide = show.format == OutputFormat::Wide;
            let table = table(&items.items, view, is_wide, are_several);
            table.write(console.out, !show.no_headers, console.has_colour)?;
            if items.is_truncated {
                writeln!(console.err, "sluice: there may be more; --limit ended the list")?;
            }
        }
    }
    console.out.flush()?;
    // Json and yaml have the number.
    if items.items.is_empty() && !matches!(show.format, OutputFormat::Json | OutputFormat::Yaml) {
        writeln!(console.err, "{}", nothing(view.key, &list.query))?;
    }
    Ok(())
}

/// The words for an empty list. An order filters nothing.
fn nothing(key: &str, query: &[(&'static str, String)]) -> String {
    let is_filtered = query.iter().any(|(key, _)| *key != "sort");
    let items = if key == LoadRow::KEY { "load rows" } else { key };
    format!("sluice: no {items}{}", if is_filtered { " match" } else { "" })
}

pub(super) fn table<T>(items: &[Typed<T>], view: &View<T>, is_wide: bool, are_several: bool) -> Table {
    let is_shown = |column: &&Column<T>| is_wide || column.kind != Kind::Wide;
    let columns: Vec<&Column<T>> = view.columns.iter().filter(is_shown).collect();
    let mut table = Table::default();
    for column in &columns {
        table.head(column.head, column.kind);
    }
    if are_several {
        table.head("RELAY", Kind::Plain);
    }
    for item in items {
        for line in 0..(view.lines)(&item.value).max(1) {
            let cells = columns.iter().map(|column| (column.cell)(&item.value, line));
            table.push(cells.chain(are_several.then(|| Some(item.relay.clone()))));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_admin_api::clients::Client;

    use super::view::{CLIENTS, RESOURCES, SOURCES};
    use super::*;

    fn clients() -> Items<Client<'static>> {
        let long = "envoy-".to_owned() + &"a-very-long-name-".repeat(12) + "end";
        let cluster = json!({
            "type": "envoy.config.cluster.v3.Cluster", "state": "STALE", "server": "cp-1.example:15010",
            "class": "c0ffee12", "why": "unacked", "state_seconds": 4.2,
            "should": "b41f0c2e000000000000000000000000", "has": "1c0e77aa000000000000000000000000",
        });
        let route = json!({
            "type": "envoy.config.route.v3.RouteConfiguration", "state": "ERROR", "why": "rejected", "state_seconds": 61.0,
            "server": "cp-1.example:15010", "class": "c0ffee12",
            "nack": {"version": null, "detail": "no", "seconds": 61.0},
        });
        let first = json!({"id": 71, "node": "envoy\u{1b}[2J", "cluster": "web", "peer": "10.0.4.7:51344", "open_seconds": 7860,
            "types": [cluster, route]});
        let second = json!({"id": 2, "node": long, "cluster": "", "types": []});
        let items = vec![Typed::new(first, "r1:19000").unwrap(), Typed::new(second, "r2:19000").unwrap()];
        Items { items, is_truncated: false }
    }

    fn shown(format: OutputFormat, are_several: bool, no_headers: bool, is_terminal: bool) -> String {
        let list = List::of_all(&CLIENTS);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal, has_colour: is_terminal };
        let show = Show { format, watch: false, no_headers };
        write(&clients(), &list, are_several, show, &mut console).unwrap();
        assert!(err.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cmd_3_an_empty_list_says_so_and_an_order_is_no_filter() {
        let query = [("sort", "errors".to_owned()), ("cluster", "a".to_owned())];
        assert_eq!(nothing("load", &query[..1]), "sluice: no load rows");
        assert_eq!(nothing("load", &query), "sluice: no load rows match");
        assert_eq!(nothing("clients", &[]), "sluice: no clients");
    }

    #[test]
    fn cmd_3_nothing_is_cut_and_columns_come_at_the_right_end() {
        let base = shown(OutputFormat::Table, false, false, false);
        let wide = shown(OutputFormat::Wide, false, false, false);
        let several = shown(OutputFormat::Wide, true, false, false);
        for ((base, wide), several) in base.lines().zip(wide.lines()).zip(several.lines()) {
            assert!(wide.starts_with(base) && several.starts_with(wide), "{base}\n{wide}\n{several}");
        }
        assert!(base.contains("a-very-long-name-end") && several.ends_with("r2:19000\n"), "{several}");
        assert!(base.contains("envoy\\u{1b}[2J"), "{base}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = wide.lines().map(words).collect();
        let heads = "ID NODE CLUSTER TYPE STATE WHY FOR HAS SHOULD VIA CLASS PEER OPEN";
        assert_eq!(lines[0].join(" "), heads);
        let row = "71 envoy\\u{1b}[2J web Cluster STALE unacked 4.2s 1c0e77aa b41f0c2e cp-1.example:15010 c0ffee12 \
                   10.0.4.7:51344 2h11m";
        assert_eq!(lines[1].join(" "), row);
        assert_eq!(lines[2][3..7].join(" "), "RouteConfiguration ERROR rejected 1m1s");
        assert_eq!(lines[3][2..7].join(" "), "- - - - -");
        assert!(shown(OutputFormat::Table, false, true, false).starts_with("71  envoy\\u{1b}[2J "));
    }

    #[test]
    fn cmd_3_a_terminal_sees_the_same_in_colour() {
        let plain = shown(OutputFormat::Table, false, false, false);
        let colourful = shown(OutputFormat::Table, false, false, true);
        let stripped = ["\u{1b}[33m", "\u{1b}[31m", "\u{1b}[0m"];
        assert_eq!(stripped.iter().fold(colourful.clone(), |text, code| text.replace(code, "")), plain);
        assert_ne!(colourful, plain);
    }

    #[test]
    fn cmd_1_json_is_that_of_the_api_with_the_relay_of_each_item() {
        let text = shown(OutputFormat::Json, false, false, true);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json, json!({"clients": jsons(&clients().items), "count": 2, "truncated": false}));
        let yaml: Value = serde_saphyr::from_str(&shown(OutputFormat::Yaml, false, false, true)).unwrap();
        assert_eq!(yaml, json);
        assert_eq!(shown(OutputFormat::Name, true, false, false), "71\n2\n");
        for text in [text, shown(OutputFormat::Yaml, true, false, true)] {
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }

    #[test]
    fn sources_and_resources_have_their_columns() {
        let source = json!({
            "server": "cp-1:15010", "list": "xds_servers", "class": "c0ffee12", "state": "backoff", "state_seconds": 60.0,
            "stale_seconds": 60.0, "last_error": "UNAVAILABLE: connection refused", "restored": false,
            "types": [{"type": "a.Cluster", "present": 3}, {"type": "a.Listener", "present": 1}],
        });
        let mut out = Vec::new();
        let source = Typed::new(source, "r").unwrap();
        table(&[source], &SOURCES, false, false).write(&mut out, false, false).unwrap();
        let line =
            "cp-1:15010  xds_servers  c0ffee12  backoff  1m  1m  2  4  UNAVAILABLE: connection refused\n";
        assert_eq!(String::from_utf8(out).unwrap(), line);
        let secret = json!({"type": "envoy.extensions.transport_sockets.tls.v3.Secret", "name": "key"});
        let secret = Typed::new(secret, "r").unwrap();
        let mut out = Vec::new();
        table(std::slice::from_ref(&secret), &RESOURCES, false, false).write(&mut out, false, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "Secret  key  -  -  -  -\n");
        assert_eq!((RESOURCES.name)(&secret.value).as_deref(), Some("Secret/key"));
    }

    #[test]
    fn a_value_of_a_filter_stays_one_value() {
        let query = [("node", "a&b".to_owned()), ("limit", "3".to_owned())];
        assert_eq!(path("/clients", query), "/clients?node=a%26b&limit=3");
        assert_eq!(path("/clients", []), "/clients");
    }
}
