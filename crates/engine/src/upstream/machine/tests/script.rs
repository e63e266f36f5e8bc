//! Transcripts. Lines with `>` are inputs, the lines between are outputs.
//!
//! ```text
//! > + CDS a b          subscribe; `*` is the wildcard          > - CDS a       unsubscribe
//! > opened             > alive          > unconnected          > closed UNAVAILABLE      > unchanged
//! > succeed            > next opened    > next failed          a second stream is to replace the open stream
//! > receiving          first bytes of a response           > far    round trips take time; `> returned` ends a trip
//! > marks              the server sets marks on the stream
//! > mark CDS 1 whole g a mark, after so many requests of the type: the whole type, globs
//! > going away         > reach          > current CDS          the state of the server; whether a type is current
//! > reject CDS words  clients reject the type            `true`: the server is told
//! > provisional CDS    whether a wildcard is provisional
//! > after 10s          time passes; timers that fall due meanwhile fire at their time
//! > CDS v1 n1 a=1 …    a response: version (`-` in delta), nonce, then elements:
//!     a=1      resource `a`, upstream version 1        a=1/x   with the alias `x`
//!     a=1^     not to be cached                        a=1#9   with 9 KiB more
//!     ~a=1     without payload                         -a      in `removed_resources`
//!     !a       bad, but known by its name              !       bad without a name
//!     a:NAME   in `resource_errors` with the code NAME         @cp     from the control plane `cp`
//!     a[k=v]=1 a variant for clients with the parameter; `[k]`: any value, `[!k=v]`, `[!k]`: the contrary
//! ```
//! Names with parameters are spelled `a{k=v}`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use sluice_xds::{
    Any, BadElement, Constraint, Constraints, DeltaResponse, Element, Received, Resource, ResourceError,
    ResourceName, SetMark, SotwResponse, Version,
};

const TYPES: &[(&str, &str)] = &[
    ("CDS", "envoy.config.cluster.v3.Cluster"),
    ("EDS", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("LDS", "envoy.config.listener.v3.Listener"),
    ("RDS", "envoy.config.route.v3.RouteConfiguration"),
    ("SRDS", "envoy.config.route.v3.ScopedRouteConfiguration"),
    ("Custom", "acme.Custom"),
    ("Address", "istio.workload.Address"),
];

pub(super) fn sotw() -> UpstreamSettings {
    UpstreamSettings { variant: Variant::Sotw, ..UpstreamSettings::default() }
}

pub(super) fn delta() -> UpstreamSettings {
    UpstreamSettings::default()
}

/// Polls every 10 s, with half of it added.
pub(super) fn rest() -> UpstreamSettings {
    let transport = Transport::Rest { refresh_delay: Duration::from_secs(10) };
    UpstreamSettings { transport, ..legacy(sotw()) }
}

pub(super) fn legacy(settings: UpstreamSettings) -> UpstreamSettings {
    UpstreamSettings { wildcard: WildcardStyle::Legacy, ..settings }
}

pub(super) fn type_url(short: &str) -> TypeUrl {
    let known = TYPES.iter().find(|(name, _)| *name == short);
    TypeUrl::of_message(known.map_or(short, |(_, message)| message))
}

/// Runs a transcript and compares the whole with the outputs.
#[track_caller]
pub(super) fn check(settings: UpstreamSettings, transcript: &str) {
    let expected: Vec<&str> = transcript.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut script = Script::new(settings);
    let mut actual = Vec::new();
    for input in expected.iter().filter_map(|line| line.strip_prefix("> ")) {
        actual.push(format!("> {input}"));
        actual.extend(script.run(input));
    }
    assert!(expected == actual, "\nexpected:\n{}\n\nactual:\n{}\n", expected.join("\n"), actual.join("\n"));
}

pub(super) struct Script {
    pub(super) upstream: Upstream,
    now: Time,
    variant: Variant,
    /// Round trips take as long as the transcript says.
    is_far: bool,
}

impl Script {
    pub(super) fn new(settings: UpstreamSettings) -> Self {
        let variant = settings.variant;
        Script { variant, upstream: Upstream::new(settings), now: Time::ZERO, is_far: false }
    }

    /// Runs one line of input. Returns the lines of output.
    pub(super) fn run(&mut self, input: &str) -> Vec<String> {
        if input == "reach" {
            return vec![match self.upstream.reach() {
                Reachability::Pending => "pending".to_owned(),
                Reachability::Heard { since } => format!("heard {}ms", since.since(Time::ZERO).as_millis()),
                Reachability::Lost { since, status } => {
                    format!("lost {}ms {}", since.since(Time::ZERO).as_millis(), status.code.name())
                }
            }];
        }
        if let Some(short) = input.strip_prefix("provisional ") {
            return vec![self.upstream.is_provisional(&type_url(short)).to_string()];
        }
        if let Some(short) = input.strip_prefix("current ") {
            let (short, names) = short.split_once(' ').unwrap_or((short, ""));
            let type_url = type_url(short);
            let is_open = |name: &str| {
                let unanswered = self.upstream.unanswered_names(&type_url);
                unanswered.is_none_or(|unanswered| unanswered.contains(&ResourceName::from(name)))
            };
            let is_of_names = !names.is_empty() && !names.split_whitespace().any(is_open);
            return vec![(is_of_names || self.upstream.is_current(&type_url)).to_string()];
        }
        if let Some((short, words)) = input.strip_prefix("reject ").and_then(|rest| rest.split_once(' ')) {
            let is_told = self.upstream.report_rejections(&type_url(short), words, self.now);
            let told = self.drain();
            let shown = told.iter().filter_map(show).map(|line| readable(&line));
            return shown.chain([is_told.to_string()]).collect();
        }
        self.raw(&spelled(input)).iter().filter_map(show).map(|line| readable(&line)).collect()
    }

    pub(super) fn raw(&mut self, input: &str) -> Vec<Output> {
        let (verb, rest) = input.split_once(' ').unwrap_or((input, ""));
        match verb {
            "+" | "-" => {
                let (short, names) = rest.split_once(' ').unwrap_or((rest, ""));
                let names: Vec<ResourceName> = names.split_whitespace().map(ResourceName::from).collect();
                let is_wildcard = names.iter().any(ResourceName::is_wildcard);
                let is_glob = names.iter().any(ResourceName::is_glob);
                let wanted = match (is_wildcard, is_glob) {
                    (true, _) => ResourceSelection::Wildcard,
                    (_, true) => ResourceSelection::Globs(names),
                    _ => ResourceSelection::Names(names),
                };
                if verb == "+" {
                    self.upstream.subscribe(&type_url(short), wanted, self.now);
                } else {
                    self.upstream.unsubscribe(&type_url(short), wanted, self.now);
                }
            }
            "after" => return self.after(duration(rest)),
            "far" => self.is_far = true,
            "opened" => self.upstream.handle(Input::Opened, self.now),
            "unchanged" => self.upstream.handle(Input::Unchanged, self.now),
            "going" => self.upstream.handle(Input::GoingAway, self.now),
            "marks" => self.upstream.handle(Input::Marks, self.now),
            "mark" => {
                let (short, rest) = rest.split_once(' ').unwrap();
                let (requests, rest) = rest.split_once(' ').unwrap();
                let (whole, globs) = rest.split_whitespace().partition::<Vec<_>, _>(|word| *word == "whole");
                let globs = globs.into_iter().map(ResourceName::from).collect();
                let mark = SetMark { requests: requests.parse().unwrap(), whole: !whole.is_empty(), globs };
                self.upstream.handle(Input::Marked(type_url(short), mark), self.now);
            }
            "receiving" => self.upstream.handle(Input::Receiving, self.now),
            "returned" => self.upstream.handle(Input::Returned, self.now),
            "flushed" => self.upstream.handle(Input::Flushed, self.now),
            "alive" => self.upstream.handle(Input::Alive, self.now),
            "reject" => {
                let (short, words) = rest.split_once(' ').unwrap();
                self.upstream.report_rejections(&type_url(short), words, self.now);
            }
            "succeed" => self.upstream.succeed(),
            "next" if rest == "opened" => self.upstream.handle(Input::NextOpened, self.now),
            "next" => self.upstream.handle(Input::NextFailed, self.now),
            "unconnected" => {
                self.upstream.handle(Input::ConnectFailed { status: status("UNAVAILABLE") }, self.now)
            }
            "closed" => self.upstream.handle(Input::Closed { status: status(rest), jitter: 0.5 }, self.now),
            short => self.upstream.handle(Input::Received(response(self.variant, short, rest)), self.now),
        }
        self.drain()
    }

    fn after(&mut self, duration: Duration) -> Vec<Output> {
        let end = self.now + duration;
        let mut outputs = Vec::new();
        for turn in 0.. {
            assert!(turn < 1000, "a timer spins");
            let Some(due) = self.upstream.poll_timeout().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.upstream.handle_timeout(self.now);
            outputs.extend(self.drain());
        }
        self.now = end;
        outputs
    }

    fn drain(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.upstream.poll_output() {
            match output {
                Output::Open { variant, .. } => self.variant = variant,
                Output::RoundTrip if !self.is_far => {
                    self.upstream.handle(Input::Returned, self.now);
                    continue;
                }
                Output::Flush if !self.is_far => {
                    self.upstream.handle(Input::Flushed, self.now);
                    continue;
                }
                _ => {}
            }
            outputs.push(output);
        }
        outputs
    }
}

/// Translates the names of a transcript into names for the machine.
fn spelled(input: &str) -> String {
    input.replace(['{', '}'], "\u{fdd0}").replace(['[', ']'], "\u{fdd1}")
}

/// The reverse of [`spelled`], for outputs.
fn readable(line: &str) -> String {
    let marks = [("\u{fdd0}", "{", "}"), ("\u{fdd1}", "[", "]")];
    marks.iter().fold(line.to_owned(), |line, (mark, open, close)| {
        let escaped = mark.escape_unicode().to_string();
        let line = line.replace(&escaped, mark);
        let parts = line.split(mark).enumerate();
        parts
            .map(|(at, part)| {
                if at == 0 {
                    part.to_owned()
                } else {
                    format!("{}{part}", if at % 2 == 1 { open } else { close })
                }
            })
            .collect()
    })
}

/// The constraints of a variant, by its name.
fn constraints_of(name: &str) -> Option<Arc<Constraints>> {
    let (_, text) = name.strip_suffix('\u{fdd1}')?.split_once('\u{fdd1}')?;
    let bare = text.trim_start_matches('!');
    let condition = match bare.split_once('=') {
        Some((key, value)) => Constraint::Equals(key.into(), value.into()),
        None => Constraint::Exists(bare.into()),
    };
    let condition = if bare == text { condition } else { Constraint::Not(Box::new(condition)) };
    Some(Arc::new(Constraints::new(condition, Bytes::new())))
}

fn duration(text: &str) -> Duration {
    if let Some(micros) = text.strip_suffix("us") {
        return Duration::from_micros(micros.parse().unwrap());
    }
    match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().unwrap()),
        None => Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap()),
    }
}

fn status(name: &str) -> Status {
    let code = (0..17).map(Code::from_number).find(|code| code.name() == name);
    Status::new(code.unwrap_or_else(|| panic!("no such code: {name}")), "")
}

fn response(variant: Variant, short: &str, rest: &str) -> Response {
    let mut words = rest.split_whitespace();
    let (version, nonce) = (words.next().unwrap(), words.next().unwrap().to_owned());
    let states_type = version != "?";
    let version_info = if states_type { version.to_owned() } else { String::new() };
    let (mut resources, mut removed, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut control_plane = String::new();
    for word in words {
        if let Some(identifier) = word.strip_prefix('@') {
            control_plane = identifier.to_owned();
        } else if let Some(name) = word.strip_prefix('-') {
            removed.push(ResourceName::from(name));
        } else if let Some((name, code)) = word.split_once(':').filter(|(scheme, _)| *scheme != "xdstp") {
            errors.push(ResourceError { name: name.into(), status: status(code) });
        } else {
            resources.push(element(short, word));
        }
    }
    let type_url = type_url(short);
    match variant {
        Variant::Sotw => Response::Sotw(SotwResponse {
            version_info,
            type_url,
            states_type,
            nonce,
            resources,
            errors,
            control_plane,
        }),
        Variant::Delta => {
            let system_version_info = version_info;
            let rest = (removed, errors, control_plane);
            let (removed, errors, control_plane) = rest;
            Response::Delta(DeltaResponse {
                system_version_info,
                type_url,
                nonce,
                resources,
                removed,
                errors,
                control_plane,
            })
        }
    }
}

/// Equal for equal content only, as far as transcripts go.
fn content_version(name: &str, value: &[u8]) -> Version {
    let bytes = name.bytes().chain([0]).chain(value.iter().copied());
    Version(bytes.fold(1, |sum: u128, byte| sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(byte.into())))
}

fn element(short: &str, word: &str) -> Element {
    if let Some(name) = word.strip_prefix('!') {
        let name = Some(name).filter(|name| !name.is_empty()).map(ResourceName::from);
        return Err(BadElement { name, reason: "bad".to_owned(), is_instance: true });
    }
    let (word, size) = word.split_once('#').unwrap_or((word, "0"));
    let (word, do_not_cache) = word.strip_suffix('^').map_or((word, false), |word| (word, true));
    let behind = word.rfind('\u{fdd1}').unwrap_or(0);
    let equals = behind + word[behind..].find('=').unwrap();
    let (name, version) = (&word[..equals], &word[equals + 1..]);
    let (version, alias) =
        version.split_once('/').map_or((version, None), |(version, alias)| (version, Some(alias)));
    let bare = name.trim_start_matches('~');
    let mut value = version.as_bytes().to_vec();
    value.resize(version.len() + size.parse::<usize>().unwrap() * 1024, b' ');
    let resource = Resource {
        name: bare.into(),
        version: content_version(bare, &value),
        body: Any { type_url: Arc::from(type_url(short).as_str()), value: Bytes::from(value) },
        aliases: alias.map(ResourceName::from).into_iter().collect(),
        ttl: None,
        do_not_cache,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: constraints_of(bare),
    };
    let resource = (bare == name).then(|| Arc::new(resource));
    Ok(Received { name: bare.into(), upstream_version: version.into(), resource, ttl: None })
}

/// Leaves out ACK and NACK events if the request shows them, `Connected` if `opened` does, and `Heard` if a
/// response does, as nearly always.
fn show(output: &Output) -> Option<String> {
    Some(match output {
        Output::Open { variant, server: 0 } => format!("open {variant:?}"),
        Output::Open { variant, server } => format!("open {variant:?} at {server}"),
        Output::Close => "close".to_owned(),
        Output::OpenNext { variant, .. } => format!("open next {variant:?}"),
        Output::TakeNext => "take next".to_owned(),
        Output::Probe => "probe".to_owned(),
        Output::RoundTrip => "round trip".to_owned(),
        Output::Flush => "flush".to_owned(),
        Output::Send { request, first } => {
            format!("{} {}", if *first { "send+node" } else { "send" }, show_request(request))
        }
        Output::Changes(changes) => show_changes(changes),
        Output::Event(event) => return show_event(event),
    })
}

fn short(type_url: &TypeUrl) -> &str {
    TYPES
        .iter()
        .find(|(_, message)| *message == type_url.message())
        .map_or(type_url.short(), |(short, _)| short)
}

fn show_request(request: &Request) -> String {
    let (type_url, nonce, error) = match request {
        Request::Sotw(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
        Request::Delta(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
    };
    let mut text = short(&TypeUrl::new(type_url)).to_owned();
    match request {
        Request::Sotw(request) => {
            write!(text, " v={} n={nonce} {:?}", request.version_info, request.resource_names).unwrap();
        }
        Request::Delta(request) => {
            write!(text, " n={nonce}").unwrap();
            request.subscribe.iter().for_each(|name| write!(text, " +{name}").unwrap());
            request.unsubscribe.iter().for_each(|name| write!(text, " -{name}").unwrap());
            for (name, version) in &request.initial_resource_versions {
                write!(text, " {name}={version}").unwrap();
            }
        }
    }
    if let Some(error) = error {
        write!(text, " NACK {error}").unwrap();
    }
    text
}

fn show_changes(changes: &Changes) -> String {
    let mut text = format!("{:?} {}", changes.kind, short(&changes.type_url));
    for resource in &changes.present {
        let version = String::from_utf8_lossy(&resource.body.value);
        write!(text, " {}={}", resource.name, version.trim()).unwrap();
    }
    changes.by_alias.iter().for_each(|(alias, resource)| write!(text, " {alias}>{}", resource.name).unwrap());
    changes.unasked.iter().for_each(|name| write!(text, " new:{name}").unwrap());
    changes.absent.iter().for_each(|(name, cause)| write!(text, " -{name}:{cause:?}").unwrap());
    changes.refreshed.iter().for_each(|(name, _)| write!(text, " ~{name}").unwrap());
    changes.settled.iter().for_each(|glob| write!(text, " all:{glob}").unwrap());
    let flags = [(changes.replaces, " replaces"), (changes.complete, " complete")];
    flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, flag)| text.push_str(flag));
    text
}

fn show_event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Connected { .. }
        | Event::Heard
        | Event::Unanswered
        | Event::Acked { .. }
        | Event::Nacked { .. }
        | Event::Malformed { .. } => return None,
        Event::Disconnected { status, answered, retry_in } => {
            let answered = if *answered { "answered" } else { "unanswered" };
            format!("disconnected {status} {answered} {}ms", retry_in.as_millis())
        }
        Event::Unreachable { status } => format!("unreachable {status}"),
        Event::Repeated { type_url, count } => format!("repeated {} {count}", short(type_url)),
        Event::Unchanged { type_url } => format!("unchanged {}", short(type_url)),
        Event::SwitchedToSotw { .. } => "switched to SotW".to_owned(),
        Event::BackToDelta => "back to delta".to_owned(),
        Event::Ignored { type_url } => format!("ignored {}", short(type_url)),
        Event::ResourceError { type_url, error } => {
            format!("error {} {}:{}", short(type_url), error.name, error.status)
        }
        Event::RequestTooLong { type_url, names, limit } => {
            format!("too long {} {names} over {limit}", short(type_url))
        }
        Event::Unasked { type_url, count, limit } => {
            let limit = limit.map_or(String::new(), |limit| format!(" over {limit}"));
            format!("unasked {} {count}{limit}", short(type_url))
        }
        Event::GlobsUnserved { type_url, names } => format!("unserved {} {names:?}", short(type_url)),
        Event::Ambiguous { type_url, name } => format!("ambiguous {} {name}", short(type_url)),
        Event::Refreshed { .. } | Event::Expired { .. } | Event::NoRoom { .. } => return None,
        Event::SameVersion { .. } | Event::WentBackwards { .. } => return None,
        Event::DeletionHeld { .. }
        | Event::DeletionWithdrawn { .. }
        | Event::DeletionCarriedOut { .. }
        | Event::DeletionConfirmed { .. } => {
            return None;
        }
        Event::EndsStream { type_url, ends, .. } => format!("ends stream {} {ends}", short(type_url)),
        Event::BearsType { type_url } => format!("bears {}", short(type_url)),
        Event::Silenced { .. } | Event::SilentAbout { .. } | Event::SpeaksOf { .. } => return None,
        Event::NotServed { type_url, .. } => format!("not served {}", short(type_url)),
        Event::Timeout { type_url, names } => format!("timeout {} {names:?}", short(type_url)),
    })
}
