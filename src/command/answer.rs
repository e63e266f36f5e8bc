//! Answers besides lists, in each form of output, once or watched (CMD-3).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::arguments::{OutputFormat, Show};
use super::console::{Console, REDRAW};
use super::outcome::{Failure, Outcome};
use super::text::safe;
use super::typed::{Typed, is_age_or_text, jsons, timeless};
use super::yaml::yaml;

/// The relay counts its clients once a second, so a shorter interval would show nothing more.
const INTERVAL: Duration = Duration::from_secs(1);

/// The answers of relays.
#[derive(Debug)]
pub(super) struct RelayAnswers<T> {
    pub items: Vec<Typed<T>>,
    pub outcome: Outcome,
}

/// Writes answers for people. The flag asks for the wide form.
pub(super) type Table<'a, T> = dyn Fn(&[Typed<T>], bool, &mut Console<'_>) -> io::Result<()> + 'a;

/// The forms of a kind of answer.
pub(super) struct Forms<'a, T> {
    /// The key of the answers of all relays in JSON; `None`: there is one answer.
    pub key: Option<&'static str>,
    /// For people.
    pub table: &'a Table<'a, T>,
    /// The names in an answer.
    pub names: fn(&T) -> Vec<String>,
}

/// Asks once, or again and again.
pub(super) async fn show<T>(
    show: Show,
    console: &mut Console<'_>,
    forms: &Forms<'_, T>,
    ask: impl AsyncFn(&mut Console<'_>) -> Result<RelayAnswers<T>, Failure>,
) -> Result<Outcome, Failure> {
    if show.watch {
        return watch(show, console, forms, ask).await;
    }
    let RelayAnswers { items, outcome } = ask(console).await?;
    write(&items, show.format, console, forms)?;
    Ok(outcome)
}

fn write<T>(
    items: &[Typed<T>],
    format: OutputFormat,
    console: &mut Console<'_>,
    forms: &Forms<'_, T>,
) -> Result<(), Failure> {
    let all = || match (forms.key, items) {
        (None, [one]) => one.json.clone(),
        (key, _) => json!({ key.unwrap_or("answers"): jsons(items) }),
    };
    match format {
        OutputFormat::Json => console.json(&all())?,
        OutputFormat::Yaml => console.out.write_all(yaml(&all()).as_bytes())?,
        OutputFormat::Name => {
            for name in items.iter().flat_map(|item| (forms.names)(&item.value)) {
                writeln!(console.out, "{}", safe(&name))?;
            }
        }
        OutputFormat::Table => (forms.table)(items, false, console)?,
        OutputFormat::Wide => (forms.table)(items, true, console)?,
    }
    console.out.flush()?;
    Ok(())
}

async fn watch<T>(
    show: Show,
    console: &mut Console<'_>,
    forms: &Forms<'_, T>,
    ask: impl AsyncFn(&mut Console<'_>) -> Result<RelayAnswers<T>, Failure>,
) -> Result<Outcome, Failure> {
    let is_drawn = console.is_terminal && !matches!(show.format, OutputFormat::Json | OutputFormat::Yaml);
    let (mut seen, mut fault) = (None, None);
    loop {
        match ask(console).await {
            Ok(answered) => {
                if is_drawn {
                    console.out.write_all(REDRAW.as_bytes())?;
                    write(&answered.items, show.format, console, forms)?;
                }
                let seen = seen.get_or_insert_with(BTreeMap::new);
                for item in news(seen, answered.items).iter().filter(|_| !is_drawn) {
                    console.json_line(item)?;
                }
                fault = None;
            }
            // The first answer may fail. Later a client may be away for a moment, or a relay restarted.
            Err(failure) if seen.is_none() || matches!(failure, Failure::Closed | Failure::Internal(_)) => {
                return Err(failure);
            }
            Err(failure) => {
                let text = failure.text().unwrap_or_default().to_owned();
                if fault.as_ref() != Some(&text) {
                    writeln!(console.err, "sluice: {text}")?;
                }
                fault = Some(text);
            }
        }
        sleep(INTERVAL).await;
    }
}

/// The answers that differ from the last ones of their relays.
fn news<T>(seen: &mut BTreeMap<String, Value>, items: Vec<Typed<T>>) -> Vec<Value> {
    let is_new = |item: &Typed<T>| {
        let lasting = timeless(&item.json, is_age_or_text);
        let before = seen.insert(item.relay.clone(), lasting.clone());
        before != Some(lasting)
    };
    items.into_iter().filter(is_new).map(|item| item.json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(json: Value, relay: &str) -> Typed<Value> {
        Typed::new(json, relay).unwrap()
    }

    fn shown(items: &[Typed<Value>], format: OutputFormat, key: Option<&'static str>) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        let table = |items: &[Typed<Value>], is_wide: bool, console: &mut Console<'_>| {
            writeln!(console.out, "{} {is_wide}", items.len())
        };
        let forms =
            Forms { key, table: &table, names: |item| vec![item["name"].as_str().unwrap().to_owned()] };
        write(items, format, &mut console, &forms).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cmd_1_each_form_has_the_same_answers() {
        let one = json!({"name": "a\u{1b}", "relay": "r"});
        let items = [typed(json!({"name": "a\u{1b}"}), "r")];
        for (key, whole) in [(None, one.clone()), (Some("who"), json!({ "who": [one] }))] {
            assert_eq!(
                serde_json::from_str::<Value>(&shown(&items, OutputFormat::Json, key)).unwrap(),
                whole
            );
            assert_eq!(
                serde_saphyr::from_str::<Value>(&shown(&items, OutputFormat::Yaml, key)).unwrap(),
                whole
            );
            assert_eq!(shown(&items, OutputFormat::Name, key), "a\\u{1b}\n");
            assert_eq!(shown(&items, OutputFormat::Table, key), "1 false\n");
            assert_eq!(shown(&items, OutputFormat::Wide, key), "1 true\n");
        }
    }

    #[test]
    fn cmd_3_a_watched_answer_is_written_when_it_changes() {
        let mut seen = BTreeMap::new();
        let item = |relay: &str, state: &str, age: f64| {
            let part = json!({"state": state, "seconds": age, "text": format!("for {age}s")});
            typed(json!({ "parts": [part] }), relay)
        };
        let mut step = |items: Vec<Typed<Value>>| news(&mut seen, items);
        assert_eq!(step(vec![item("a", "SYNCED", 1.0), item("b", "SYNCED", 1.0)]).len(), 2);
        assert_eq!(step(vec![item("a", "SYNCED", 2.0), item("b", "SYNCED", 2.0)]), [] as [Value; 0]);
        let changed = item("b", "STALE", 3.0);
        assert_eq!(step(vec![item("a", "SYNCED", 3.0), changed.clone()]), [changed.json]);
    }
}
