//! The bound on the content of a source (ADR 68).

use crate::upstream::{Event, Hold, Input, Output as Said};
use sluice_xds::{DeltaResponse, Received, Request, Response, SotwResponse};

use super::*;

/// The weight of a resource of one kilobyte.
const ONE: usize = 2000;

struct Server {
    bench: Bench,
    variant: Variant,
    message: &'static str,
    /// The text of each NACK; `ack`; `no room N`; `open`.
    said: Vec<String>,
}

impl Server {
    /// A source with room for so many resources, and one session that wants everything.
    fn new(variant: Variant, message: &'static str, room: usize, wanted: &str) -> Server {
        let settings = UpstreamSettings { variant, ..UpstreamSettings::default() };
        Server::with(settings, message, room, wanted)
    }

    fn with(settings: UpstreamSettings, message: &'static str, room: usize, wanted: &str) -> Server {
        let variant = settings.variant;
        let streams = Attachment::Streams(Box::new(Streams::new(settings)));
        let mut server =
            Server { bench: Bench::new(streams, bounded(room)), variant, message, said: Vec::new() };
        server.bench.watch(1, message, wanted);
        server.input(Input::Opened);
        server.said.clear();
        server
    }

    fn input(&mut self, input: Input) {
        self.bench.source.handle_upstream(0, input, self.bench.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.bench.source.poll_output() {
            let SourceOutput::Upstream(_, output) = output else { continue };
            match output {
                Said::RoundTrip => self.input(Input::Returned),
                Said::Open { .. } => self.said.push("open".to_owned()),
                Said::Event(Event::NoRoom { resources, .. }) => {
                    self.said.push(format!("no room {resources}"))
                }
                Said::Send { request: Request::Delta(request), .. } => {
                    self.said.push(request.error_detail.map_or("ack".to_owned(), |error| error.message));
                }
                Said::Send { request: Request::Sotw(request), .. } => {
                    self.said.push(request.error_detail.map_or("ack".to_owned(), |error| error.message));
                }
                _ => {}
            }
        }
    }

    /// `a=1*3`: content 1 of three kilobytes. `-a`: removed.
    fn says(&mut self, list: &str) -> Vec<String> {
        let element = |word: &str| {
            let (name, content) = word.split_once('=')?;
            let (version, kilobytes) = content.split_once('*').unwrap_or((content, "1"));
            let len = kilobytes.parse::<usize>().unwrap() * ONE - 850 - 64 - name.len();
            let mut resource =
                Arc::unwrap_or_clone(resources(self.message, &format!("{name}={version}")).remove(0));
            resource.body.value = Bytes::from(vec![0; len - resource.body.type_url.len()]);
            let resource = Some(Arc::new(resource));
            Some(Ok(Received { name: name.into(), upstream_version: version.into(), resource, ttl: None }))
        };
        let resources = list.split_whitespace().filter_map(element).collect();
        let removed =
            list.split_whitespace().filter_map(|word| word.strip_prefix('-')).map(Into::into).collect();
        let (type_url, nonce) = (url(self.message), "n".to_owned());
        let (version_info, errors, control_plane) = Default::default();
        self.input(Input::Received(match self.variant {
            Variant::Sotw => Response::Sotw(SotwResponse {
                version_info,
                type_url,
                states_type: true,
                nonce,
                resources,
                errors,
                control_plane,
            }),
            Variant::Delta => Response::Delta(DeltaResponse {
                system_version_info: version_info,
                type_url,
                nonce,
                resources,
                removed,
                errors,
                control_plane,
            }),
        }));
        std::mem::take(&mut self.said)
    }

    fn refused(&self) -> usize {
        self.bench.source.no_room(&url(self.message)).map_or(0, |entry| entry.names.len())
    }
}

fn bounded(room: usize) -> SourceSettings {
    SourceSettings { content_bytes: Some(room * ONE), ..SourceSettings::default() }
}

#[test]
fn what_finds_no_room_is_rejected_and_the_rest_stays() {
    for (variant, wanted, message) in [
        (Variant::Delta, "*", CDS),
        (Variant::Delta, "a b c d e", CDS),
        (Variant::Sotw, "*", CDS),
        // No full state, where the first response would say that there is no `c`.
        (Variant::Sotw, "a b c d e", EDS),
    ] {
        let mut server = Server::new(variant, message, 3, wanted);
        assert_eq!(server.says("a=1 b=1"), ["ack"]);
        assert_eq!(server.bench.source.content_bytes(), 2 * ONE);
        let said = server.says("a=2 b=1 c=1 d=1 e=1");
        assert_eq!(said[0], "no room 2", "{said:?}");
        assert!(
            said[1].contains("d: no room") && said[1].contains("limits.source_bytes, 6000 bytes"),
            "{said:?}"
        );
        let held = server.bench.view(message, wanted);
        assert!(held.starts_with("a=2 b=1 c=1") && !held.contains('-'), "{held}");
        assert_eq!((server.refused(), server.bench.source.content_bytes()), (2, 3 * ONE));
        // A held resource that would grow keeps its content.
        let said = server.says("a=3*2 b=2 c=1");
        assert!(said[1].starts_with("a: no room"), "{said:?}");
        assert!(server.bench.view(message, wanted).starts_with("a=2 b=2 c=1"));
    }
}

#[test]
fn removals_and_shrinking_updates_are_always_taken() {
    for wanted in ["*", "a b c"] {
        let mut server = Server::new(Variant::Delta, CDS, 3, wanted);
        server.says("a=1*3");
        // The bound is lowered.
        let settings = (bounded(1), UpstreamSettings::default());
        server.bench.source.configure(settings.0, Some(&settings.1), server.bench.now);
        assert_eq!(server.says("a=2*2"), ["ack"]);
        assert_eq!(server.says("b=1")[0], "no room 1");
        assert_eq!(server.says("-a b=1"), ["ack"], "a removal makes room for the same response");
        assert_eq!(server.refused(), 0);
    }
    let mut server = Server::new(Variant::Sotw, CDS, 2, "*");
    assert_eq!(server.says("a=1 b=1"), ["ack"]);
    assert_eq!(server.says("c=1 d=1"), ["ack"], "a full state replaces what was there");
    assert_eq!(server.bench.view(CDS, "*"), "c=1 d=1");
    assert_eq!(server.says("d=1 e=1*2")[0], "no room 1");
    assert_eq!(server.bench.view(CDS, "*"), "d=1", "an omission counts beside a refusal");
}

#[test]
fn a_deletion_that_is_held_back_makes_no_room() {
    let hold = Hold::For(Duration::from_secs(60));
    let settings = UpstreamSettings {
        variant: Variant::Sotw,
        mass_deletion_hold: Some(hold),
        ..UpstreamSettings::default()
    };
    let mut server = Server::with(settings, CDS, 3, "*");
    server.says("a=1 b=1 c=1");
    assert_eq!(server.says("d=1 e=1 f=1")[0], "no room 3");
}

#[test]
fn dat_2_a_refusal_is_no_data_error() {
    let settings = UpstreamSettings { fails_on_data_errors: true, ..UpstreamSettings::default() };
    let mut server = Server::with(settings, EDS, 2, "a b c");
    server.says("a=1 b=1");
    assert_eq!(server.says("a=2*2")[0], "no room 1");
    assert_eq!(server.bench.view(EDS, "a b c"), "a=1 b=1 ?1");
}

#[test]
fn what_nobody_wants_takes_no_room() {
    let mut server = Server::new(Variant::Delta, EDS, 2, "a b");
    assert_eq!(server.says("a=1 x=1 y=1 z=1 b=1"), ["ack"]);
    assert_eq!(server.bench.view(EDS, "a b"), "a=1 b=1");
}

/// All types share the room of a source, and sources share nothing.
#[test]
fn types_share_the_room() {
    let mut server = Server::new(Variant::Delta, CDS, 2, "*");
    server.bench.watch(1, EDS, "e f");
    server.says("a=1");
    server.message = EDS;
    assert_eq!(server.says("e=1 f=1")[0], "no room 1");
    server.message = CDS;
    assert_eq!(server.says("-a"), ["ack"]);
}

#[test]
fn ack_5_what_was_refused_is_requested_again_when_there_is_room() {
    let mut server = Server::new(Variant::Delta, CDS, 2, "*");
    server.says("a=1 b=1 c=1 d=1");
    assert_eq!(server.refused(), 2);
    server.says("-a");
    server.bench.advance(Duration::from_secs(120));
    server.drain();
    assert!(!server.said.contains(&"open".to_owned()), "there is room for one of the two");
    server.says("-b");
    server.bench.advance(Duration::from_secs(1));
    server.drain();
    assert!(server.said.contains(&"open".to_owned()), "{:?}", server.said);
    assert_eq!(server.refused(), 0);
    // The operator raises the bound.
    let mut server = Server::new(Variant::Sotw, CDS, 2, "*");
    server.says("a=1 b=1 c=1");
    server.bench.source.configure(bounded(3), Some(&UpstreamSettings::default()), server.bench.now);
    server.drain();
    assert_eq!((server.said.last().unwrap().as_str(), server.refused()), ("open", 0));
}

#[test]
fn without_a_bound_everything_is_taken() {
    let mut server = Server::new(Variant::Delta, CDS, 1, "*");
    server.bench.source.configure(
        SourceSettings::default(),
        Some(&UpstreamSettings::default()),
        server.bench.now,
    );
    assert_eq!(server.says("a=1*10 b=1*10"), ["ack"]);
}

/// DEL-17: what comes unasked counts, too.
#[test]
fn what_comes_unasked_finds_no_room_either() {
    const ADDRESS: &str = "istio.workload.Address";
    let streams = Attachment::Streams(Box::new(Streams::new(UpstreamSettings::default())));
    let settings = SourceSettings { unasked_names: Some(100), ..bounded(2) };
    let bench = Bench::new(streams, settings);
    let mut server = Server { bench, variant: Variant::Delta, message: ADDRESS, said: Vec::new() };
    server.bench.watch(1, ADDRESS, "vip");
    server.input(Input::Opened);
    server.said.clear();
    let said = server.says("vip=1 a=1 b=1");
    assert!(said.iter().any(|said| said.starts_with("b: no room")), "{said:?}");
    assert_eq!((server.bench.view(ADDRESS, "vip"), server.refused()), ("vip=1".to_owned(), 1));
    let known = &server.bench.source.publication.snapshot.of(&url(ADDRESS)).unwrap().names.entries;
    assert_eq!(known.keys().map(ResourceName::as_str).collect::<Vec<_>>(), ["a", "vip"]);
}
