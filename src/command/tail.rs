//! `sluice tail`: the requests and responses of one client, live (ADM-15).

use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{Parameters, TailParameters};
use sluice_admin_api::tail::{TailBegin, TailGap, TailLine};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::address::Target;
use super::arguments::{AnswerForm, RelayArguments};
use super::client::{candidates, find};
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::sse::SseMessage;
use super::text::{parse_duration, safe};
use super::typed::with_relay;

/// The pause before a relay that was lost is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Messages between the readers and the output.
const QUEUE: usize = 64;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TailArguments {
    /// The client: its node id, for all streams of the node at all relays; or the number of a stream.
    client: String,
    /// Only the type: Cluster, or the full name of the message.
    #[arg(long = "type", value_name = "TYPE")]
    type_name: Option<String>,
    /// End after this time [default: with the stream, or never for a node].
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Form of the output; json: one object a line, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
A node is followed over the end of its streams and of its relays. Content is never shown.

Columns:
  the time, in UTC
  the number of the stream, if there have been several, and the relay, if there are several
  ->  a response: type, names, -removed names, size, version, nonce, change
  <-  a request: ACK, NACK with the client's words, or the names that the client asks for
  ==  a state that has changed and lasts: SYNCED, STALE, ERROR or NOT_SENT, with its reason
  **  the begin or the end of a stream

Examples:
  sluice tail envoy-web-3 --for 2s
  sluice tail envoy-web-3 --type Cluster -o json --for 2s";

/// News from the reader of one relay.
enum News {
    Message(SseMessage),
    /// The relay was lost, or has stopped. `is_final`: without a further attempt.
    Lost {
        missing: Missing,
        is_final: bool,
    },
}

pub(super) async fn run(tail: TailArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let relays = Relays::new(&tail.reach).await?;
    let streams = find(&relays, &tail.client, console).await?;
    let is_node =
        streams.iter().any(|(_, client)| client.node == tail.client) || tail.client.parse::<u64>().is_err();
    let of_type = TailParameters { r#type: tail.type_name.clone(), ..TailParameters::default() };
    let (relays, parameters) = match (is_node, streams.as_slice()) {
        (true, _) => (relays.relays.clone(), TailParameters { node: Some(tail.client.clone()), ..of_type }),
        (false, [(relay, client)]) => {
            let client = Some(client.id.to_string());
            (vec![Target::clone(relay)], TailParameters { client, ..of_type })
        }
        (false, []) => return Err(Failure::Usage(format!("no client is {:?}", tail.client))),
        (false, several) => return Err(Failure::Usage(candidates(&tail.client, several))),
    };
    let caller = Relays::new(&tail.reach).await?.caller;
    let path = path(Endpoint::Tail.path(), parameters.into_pairs());
    let (news, mut all) = mpsc::channel(QUEUE);
    let mut readers = JoinSet::new();
    let are_several = relays.len() > 1;
    for relay in relays {
        readers.spawn(read(caller.clone(), relay, path.clone(), is_node, news.clone()));
    }
    drop(news);
    let deadline = tail.time.map(|time| Instant::now() + time);
    let mut output = Output { form: tail.form, are_several, streams: Vec::new(), is_over: false };
    let mut lost = None;
    loop {
        let next = match deadline {
            None => all.recv().await,
            Some(deadline) => match timeout_at(deadline, all.recv()).await {
                Ok(next) => next,
                Err(_) => return Ok(Outcome::Good),
            },
        };
        match next {
            Some((label, News::Message(message))) => output.take(&label, &message, console)?,
            Some((label, News::Lost { missing, is_final })) => {
                writeln!(console.err, "sluice: relay {label}: {}", safe(&missing.text()))?;
                lost = lost.or(is_final.then_some(missing));
            }
            None => {
                return match lost {
                    None => Ok(Outcome::Good),
                    Some(missing) if missing.is_usage() => Err(Failure::Usage(missing.text())),
                    Some(missing) => Err(Failure::Unavailable(missing.text())),
                };
            }
        }
        if output.is_over {
            return Ok(Outcome::Good);
        }
    }
}

/// Reads the tail of one relay, and the tail of the next process there if a node is followed.
async fn read(
    caller: Caller,
    relay: Target,
    path: String,
    is_node: bool,
    news: mpsc::Sender<(String, News)>,
) {
    let mut has_begun = false;
    loop {
        let missing = match caller.messages(&relay, &path).await {
            Ok(mut messages) => loop {
                match messages.next().await {
                    Ok(message) => {
                        has_begun = true;
                        if news.send((relay.label.clone(), News::Message(message))).await.is_err() {
                            return;
                        }
                    }
                    Err(missing) => break missing,
                }
            },
            Err(missing) => missing,
        };
        let is_final = !(is_node && has_begun) || missing.is_usage();
        let is_heard = news.send((relay.label.clone(), News::Lost { missing, is_final })).await.is_ok();
        if is_final || !is_heard {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// The data of a message; the default for data that this sluice cannot read.
fn data<T: DeserializeOwned + Default>(message: &SseMessage) -> T {
    serde_json::from_str(&message.data).unwrap_or_default()
}

struct Output {
    form: AnswerForm,
    are_several: bool,
    /// The streams so far.
    streams: Vec<u64>,
    is_over: bool,
}

impl Output {
    fn take(&mut self, label: &str, message: &SseMessage, console: &mut Console<'_>) -> Result<(), Failure> {
        match &*message.event {
            "message" => self.line(label, message, console)?,
            "gap" => {
                let gap: TailGap = data(message);
                match self.form {
                    AnswerForm::Json => console.json_line(&with_relay(json!(gap), label))?,
                    AnswerForm::Table => writeln!(console.out, "-- {} lines left out", gap.left_out)?,
                }
            }
            "begin" => {
                let begin: TailBegin = data(message);
                self.streams.extend(&begin.streams);
                if begin.streams.is_empty() {
                    writeln!(console.err, "sluice: relay {label}: no stream is open; waiting for one")?;
                }
            }
            "end" => self.is_over = true,
            "bye" => writeln!(console.err, "sluice: relay {label}: stops")?,
            _ => {}
        }
        console.out.flush()?;
        Ok(())
    }

    fn line(&mut self, label: &str, message: &SseMessage, console: &mut Console<'_>) -> Result<(), Failure> {
        if self.form == AnswerForm::Json {
            return Ok(console.json_line(&with_relay(data(message), label))?);
        }
        let TailLine { at, stream, text, .. } = data(message);
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
        let mut words = vec![at.get(11..23).unwrap_or_default().to_owned()];
        words.extend((self.streams.len() > 1).then(|| stream.to_string()));
        words.extend(self.are_several.then(|| label.to_owned()));
        words.push(text);
        writeln!(console.out, "{}", safe(&words.join(" ")))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shown(form: AnswerForm, are_several: bool, messages: &[(&str, Value)]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        let mut output = Output { form, are_several, streams: Vec::new(), is_over: false };
        for (event, data) in messages {
            let message = SseMessage { event: (*event).to_owned(), data: data.to_string() };
            output.take("r1:19000", &message, &mut console).unwrap();
        }
        assert!(output.is_over);
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn cmd_3_lines_of_peers_stay_on_their_line() {
        let line = |stream: u64, text: &str| {
            ("message", json!({"at": "2026-11-21T08:15:02.154Z", "stream": stream, "text": text}))
        };
        let messages = [
            ("begin", json!({"node": "web", "streams": []})),
            line(71, "<- Cluster  NACK nonce 9a-31: no \u{1b}[2J\nx\u{202e}"),
            ("gap", json!({"left_out": 7})),
            line(72, "-> Cluster"),
            ("end", json!({})),
        ];
        let (out, err) = shown(AnswerForm::Table, false, &messages);
        let expected = "08:15:02.154 <- Cluster  NACK nonce 9a-31: no \\u{1b}[2J\\u{a}x\\u{202e}\n-- 7 lines left \
                        out\n08:15:02.154 72 -> Cluster\n";
        assert_eq!(out, expected);
        assert_eq!(err, "sluice: relay r1:19000: no stream is open; waiting for one\n");
        let (out, _) = shown(AnswerForm::Table, true, &messages);
        assert!(out.ends_with("08:15:02.154 72 r1:19000 -> Cluster\n"), "{out}");
        let (out, _) = shown(AnswerForm::Json, true, &messages);
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[1]), (3, &json!({"left_out": 7, "relay": "r1:19000"})));
        assert!(!out.contains('\u{1b}') && lines.iter().all(|line| line["relay"] == "r1:19000"), "{out}");
    }
}
