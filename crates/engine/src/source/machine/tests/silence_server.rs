//! A control plane in the state of the world, which answers requests for names by a rule of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::upstream::{Event, Input, Output as Out};
use sluice_xds::{Received, Request, Response, SotwRequest, SotwResponse};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A request is answered if each of its names exists: java-control-plane in ADS mode.
    All,
    /// A request is answered with the names that exist, if there are any.
    Any,
    /// A request is answered if it has each name that exists: go-control-plane in ADS mode.
    Covering,
}

/// The requests of one stream for [`EDS`].
#[derive(Default)]
struct Watch {
    names: BTreeSet<String>,
    known: BTreeSet<String>,
    version: String,
    is_open: bool,
}

pub(super) struct Server {
    pub(super) bench: Bench,
    rule: Rule,
    resources: BTreeMap<String, u64>,
    version: u64,
    streams: BTreeMap<StreamIndex, Watch>,
    /// The server neither answers nor shows life.
    pub(super) is_paused: bool,
    /// The names of each request for [`EDS`], with the number of the stream.
    pub(super) asked: Vec<(StreamIndex, String)>,
    pub(super) events: Vec<String>,
    /// Streams opened, and the most at a time.
    pub(super) opened: usize,
    pub(super) most: usize,
}

impl Server {
    pub(super) fn new(rule: Rule, resources: &str) -> Server {
        let settings = UpstreamSettings { variant: Variant::Sotw, ..UpstreamSettings::default() };
        let streams = Attachment::Streams(Box::new(Streams::new(settings)));
        let mut server = Server {
            bench: Bench::new(streams, SourceSettings::default()),
            rule,
            resources: BTreeMap::new(),
            version: 1,
            streams: BTreeMap::new(),
            is_paused: false,
            asked: Vec::new(),
            events: Vec::new(),
            opened: 0,
            most: 0,
        };
        for name in resources.split_whitespace() {
            server.resources.insert(name.to_owned(), 1);
        }
        // Another type, which the server answers in any case.
        server.bench.watch(9, CDS, "*");
        server.run(0);
        server
    }

    pub(super) fn watch(&mut self, session: u64, names: &str) {
        self.bench.watch(session, EDS, names);
        self.run(0);
    }

    pub(super) fn forget(&mut self, session: u64) {
        self.bench.source.forget(SessionId(session), self.bench.now);
        self.run(0);
    }

    /// Sets, or (content 0) removes a resource.
    pub(super) fn set(&mut self, name: &str, content: u64) {
        self.version += 1;
        match content {
            0 => drop(self.resources.remove(name)),
            _ => drop(self.resources.insert(name.to_owned(), content)),
        }
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            let watch = self.streams.get_mut(&stream).unwrap();
            // The real server forgets the request, whether or not the request is answered now.
            if std::mem::take(&mut watch.is_open) {
                self.answer(stream);
            }
        }
        self.run(0);
    }

    pub(super) fn set_rule(&mut self, rule: Rule) {
        self.rule = rule;
    }

    pub(super) fn view(&self, names: &str) -> String {
        self.bench.view(EDS, names)
    }

    /// The names of the last request on the stream of all types.
    pub(super) fn shared(&self) -> &str {
        let of_shared = self.asked.iter().rev().find(|(stream, _)| *stream == 0);
        of_shared.map_or("", |(_, names)| names)
    }

    /// Every connection breaks.
    pub(super) fn cut(&mut self) {
        for stream in std::mem::take(&mut self.streams).into_keys() {
            let closed = Input::Closed { status: Status::new(Code::Unavailable, ""), jitter: 0.5 };
            self.bench.source.handle_upstream(stream, closed, self.bench.now);
        }
        self.run(0);
    }

    /// Lets the time pass, in seconds. Answers come at once.
    pub(super) fn run(&mut self, seconds: u64) {
        let end = self.bench.now + Duration::from_secs(seconds);
        for turn in 0.. {
            assert!(turn < 20_000, "a timer spins");
            while let Some(output) = self.bench.source.poll_output() {
                self.carry_out(output);
            }
            let Some(due) = self.bench.source.poll_timeout().filter(|due| *due <= end) else { break };
            self.bench.now = self.bench.now.max(due);
            self.bench.source.handle_timeout(self.bench.now);
        }
        self.bench.now = end;
    }

    fn carry_out(&mut self, output: SourceOutput) {
        let SourceOutput::Upstream(stream, output) = output else { return };
        let input = match output {
            Out::Open { .. } => {
                self.streams.insert(stream, Watch::default());
                self.opened += 1;
                self.most = self.most.max(self.streams.len());
                Input::Opened
            }
            Out::Close => return drop(self.streams.remove(&stream)),
            Out::Probe if !self.is_paused => Input::Alive,
            Out::RoundTrip => Input::Returned,
            Out::Send { request: Request::Sotw(request), .. } => return self.request(stream, request),
            Out::Event(event) => return self.events.extend(told(&event)),
            _ => return,
        };
        self.bench.source.handle_upstream(stream, input, self.bench.now);
    }

    /// Answers for the other type on the stream of all types.
    pub(super) fn answer_clusters(&mut self) {
        self.send(0, CDS, String::new());
        self.run(0);
    }

    fn request(&mut self, stream: StreamIndex, request: SotwRequest) {
        if request.type_url != url(EDS).as_str() {
            if request.response_nonce.is_empty() && !self.is_paused {
                self.send(stream, CDS, String::new());
            }
            return;
        }
        let names: BTreeSet<_> = request.resource_names.iter().map(ToString::to_string).collect();
        self.asked.push((stream, names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")));
        let Some(watch) = self.streams.get_mut(&stream) else { return };
        let hints: Vec<_> =
            names.difference(&watch.known).filter(|name| self.resources.contains_key(*name)).collect();
        let is_current = request.version_info == self.version.to_string();
        let is_due = !hints.is_empty() || !is_current;
        (watch.names, watch.version, watch.is_open) = (names, request.version_info, !is_due);
        if is_due {
            self.answer(stream);
        }
    }

    fn answer(&mut self, stream: StreamIndex) {
        let (rule, resources) = (self.rule, &self.resources);
        let watch = self.streams.get_mut(&stream).unwrap();
        let found: Vec<_> =
            watch.names.iter().filter(|name| resources.contains_key(*name)).cloned().collect();
        let is_answered = !self.is_paused
            && match rule {
                Rule::All => found.len() == watch.names.len(),
                Rule::Any => !found.is_empty(),
                Rule::Covering => found.len() == resources.len(),
            };
        if !is_answered {
            // Servers with the other rules remember the request.
            watch.is_open |= rule != Rule::All;
            return;
        }
        watch.known = found.iter().cloned().collect();
        let list = found.iter().map(|name| format!("{name}={} ", resources[name])).collect();
        self.send(stream, EDS, list);
    }

    fn send(&mut self, stream: StreamIndex, message: &str, list: String) {
        let received = |resource: Arc<Resource>| Received {
            name: resource.name.clone(),
            upstream_version: String::new().into(),
            resource: Some(resource),
            ttl: None,
        };
        let response = SotwResponse {
            version_info: self.version.to_string(),
            type_url: url(message),
            states_type: true,
            nonce: format!("n{}", self.version),
            resources: resources(message, &list).into_iter().map(received).map(Ok).collect(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        let input = Input::Received(Response::Sotw(response));
        self.bench.source.handle_upstream(stream, input, self.bench.now);
    }
}

fn told(event: &Event) -> Option<String> {
    let texts = |names: &[ResourceName]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    Some(match event {
        Event::Silenced { names, is_cured: true, .. } => format!("silenced by {}", texts(names)),
        Event::Silenced { names, .. } => format!("silent altogether, and asked for {}", texts(names)),
        Event::SilentAbout { name, .. } => format!("silent about {name}"),
        Event::SpeaksOf { name, .. } => format!("speaks of {name}"),
        _ => return None,
    })
}
