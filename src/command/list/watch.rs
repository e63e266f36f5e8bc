//! `-w`: a list that is redrawn on a terminal, and one JSON object for each change in a pipe (CMD-3).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;

use super::{Items, List, gather, write};
use crate::command::arguments::{OutputFormat, Show};
use crate::command::console::{Console, REDRAW};
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::typed::{Typed, is_age, timeless};

/// The relay counts its clients once a second, so a shorter interval would show nothing more.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn watch<T: DeserializeOwned>(
    relays: &Relays,
    list: &List<T>,
    show: Show,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let is_drawn = console.is_terminal
        && matches!(show.format, OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name);
    let mut seen = Seen::default();
    loop {
        // The first answer may fail. A relay that is restarted later is reported, and asked again.
        match gather(relays, list, console).await {
            Ok((items, _)) if is_drawn => {
                console.out.write_all(REDRAW.as_bytes())?;
                write(&items, list, relays.are_several(), show, console)?;
            }
            Ok((items, outcome)) => {
                for change in seen.changes(items, outcome == Outcome::Good, list) {
                    console.json_line(&change)?;
                }
            }
            Err(failure) if seen.has_begun => {
                let text = failure.text().unwrap_or_default();
                writeln!(console.err, "sluice: {text}")?;
            }
            Err(failure) => return Err(failure),
        }
        seen.has_begun = true;
        sleep(INTERVAL).await;
    }
}

/// The identity of an item: a name, the relay, and the texts that tell items of one name apart.
type Identity = (Option<String>, String, Vec<String>);

/// The items of the last answer in JSON, by identity.
#[derive(Default)]
struct Seen {
    items: BTreeMap<Identity, Value>,
    has_begun: bool,
}

impl Seen {
    /// New and changed items, and those that have gone, with `"gone": true`. Without all relays, nothing has
    /// gone.
    fn changes<T>(&mut self, new: Items<T>, is_whole: bool, list: &List<T>) -> Vec<Value> {
        let mut changes = Vec::new();
        let mut now = BTreeMap::new();
        for item in new.items {
            let key = identity(&item, list);
            let lasting = |json: &Value| timeless(json, is_age);
            if self.items.get(&key).map(lasting) != Some(lasting(&item.json)) {
                changes.push(item.json.clone());
            }
            now.insert(key, item.json);
        }
        for (key, item) in std::mem::take(&mut self.items) {
            if now.contains_key(&key) {
                continue;
            }
            if is_whole {
                changes.push(gone(item));
            } else {
                now.insert(key, item);
            }
        }
        self.items = now;
        changes
    }
}

fn identity<T>(item: &Typed<T>, list: &List<T>) -> Identity {
    ((list.view.name)(&item.value), item.relay.clone(), (list.view.apart)(&item.value))
}

fn gone(mut item: Value) -> Value {
    if let Some(members) = item.as_object_mut() {
        members.insert("gone".to_owned(), Value::Bool(true));
    }
    item
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::command::list::view::CLIENTS;

    #[test]
    fn cmd_3_a_pipe_gets_one_object_a_change() {
        let list = List::of_all(&CLIENTS);
        let mut seen = Seen::default();
        let item = |id: u64, state: &str, age: f64| json!({"relay": "r", "id": id, "open_seconds": age, "types": [{"state": state, "seconds": age}]});
        let mut step = |items: Vec<Value>, is_whole| {
            let items = items.into_iter().map(|item| Typed::new(item, "r").unwrap()).collect();
            seen.changes(Items { items, is_truncated: false }, is_whole, &list)
        };
        let first = step(vec![item(1, "SYNCED", 1.0), item(2, "SYNCED", 1.0)], true);
        assert_eq!(first.len(), 2);
        assert_eq!(step(vec![item(1, "SYNCED", 2.0), item(2, "SYNCED", 2.0)], true), [] as [Value; 0]);
        let changed = item(1, "STALE", 3.0);
        assert_eq!(step(vec![changed.clone(), item(2, "SYNCED", 3.0)], true), std::slice::from_ref(&changed));
        assert_eq!(step(vec![changed.clone()], false), [] as [Value; 0], "a relay is silent");
        let left = step(vec![changed], true);
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0]["id"], &left[0]["gone"]), (&json!(2), &json!(true)));
    }
}
