//! What is written is read again, whatever happens in between, or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
mod directory;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{decode, encode, is_empty};
use super::*;
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::collection::{Collection, HashSeed, NameSet};
use sluice_engine::source::{Attachment, Image, Source, SourceSettings, Streams};
use sluice_engine::upstream::{Input, UpstreamSettings};
use sluice_xds::{
    Any, Code, DeltaResponse, Parameters, Received, Resource, ResourceError, ResourceName, Response, Status,
    TypeUrl, Version,
};

#[allow(clippy::disallowed_methods, reason = "these tests write real files, which have real times")]
fn wall_now() -> SystemTime {
    SystemTime::now()
}

const CDS: &str = "envoy.config.cluster.v3.Cluster";
const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const SDS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const SECOND: Duration = Duration::from_secs(1);

fn url(message: &str) -> TypeUrl {
    TypeUrl::of_message(message)
}

fn resource(message: &str, name: &str, version: u128) -> Resource {
    Resource {
        name: name.into(),
        version: Version(version),
        body: Any { type_url: url(message).shared(), value: Bytes::from(format!("{name} {version}")) },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: false,
        metadata: None,
        endpoints: None,
        constraints: None,
    }
}

/// A source as its server made it.
struct Bench(Source);

impl Bench {
    fn new() -> Bench {
        let attachment = Attachment::Streams(Box::new(Streams::new(UpstreamSettings::default())));
        Bench(Source::new(7, SourceSettings::default(), attachment).of_server("cp".into(), true))
    }

    fn watch(&mut self, message: &str, list: &[&str]) {
        let names = list.iter().map(|name| ResourceName::new(name));
        let collection = match list {
            ["*"] => Collection::Wildcard,
            [name, ..] if ResourceName::new(name).is_glob() => {
                Collection::Globs(Arc::new(NameSet::of(names, HashSeed(7))))
            }
            _ => Collection::Names(Arc::new(NameSet::of(names, HashSeed(7)))),
        };
        self.0.watch_after(SessionId(1), &url(message), &collection, None, Time::ZERO);
        self.0.handle_upstream(0, Input::Opened, Time::ZERO);
    }

    fn says(
        &mut self,
        message: &str,
        resources: Vec<Resource>,
        removed: &[&str],
        errors: Vec<ResourceError>,
    ) {
        let received = |resource: Resource| {
            let (name, ttl) = (resource.name.clone(), resource.ttl);
            let upstream_version = format!("v{}", { resource.version.0 }).into();
            Ok(Received { name, upstream_version, ttl, resource: Some(Arc::new(resource)) })
        };
        let response = DeltaResponse {
            system_version_info: String::new(),
            type_url: url(message),
            nonce: "n".into(),
            resources: resources.into_iter().map(received).collect(),
            removed: removed.iter().map(|name| ResourceName::new(name)).collect(),
            errors,
            control_plane: String::new(),
        };
        self.0.handle_upstream(0, Input::Received(Response::Delta(response)), Time::ZERO);
        self.0.handle_upstream(0, Input::Returned, Time::ZERO);
    }

    fn image(&self) -> Image {
        self.0.image(Time::ZERO)
    }
}

fn header() -> Header {
    Header {
        identity: Identity { list: "xds_servers".into(), server: "cp:1".into(), class: [1; 32] },
        relay: [2; 32],
        written_at: time_of(micros(wall_now())),
        confirmed_at: time_of(micros(wall_now() - SECOND)),
    }
}

fn bytes_of(header: &Header, image: &Image) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = encode(header, image, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    assert_eq!(length.unwrap(), bytes.len() as u64);
    bytes
}

/// Two clusters by the wildcard, endpoints by name.
fn small(version: u128) -> Image {
    let mut bench = Bench::new();
    bench.watch(CDS, &["*"]);
    bench.watch(EDS, &["x", "y"]);
    bench.says(CDS, vec![resource(CDS, "a", version), resource(CDS, "b", 2)], &[], vec![]);
    bench.says(EDS, vec![resource(EDS, "x", version)], &[], vec![]);
    bench.image()
}

#[test]
fn rly_7_all_that_a_resource_is_comes_back() {
    let glob = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/g/*";
    let member = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/g/m";
    let mut bench = Bench::new();
    bench.watch(CDS, &["*"]);
    bench.watch(EDS, &[glob]);
    let full = Resource {
        aliases: vec!["other".into()].into(),
        ttl: Some(SECOND * 60),
        metadata: Some(Bytes::from_static(b"meta")),
        endpoints: Some("its endpoints".into()),
        body: Any { type_url: "acme.Redirect".into(), value: Bytes::from_static(b"body") },
        ..resource(CDS, "a", 1)
    };
    bench.says(CDS, vec![full.clone(), resource(CDS, "b", 2)], &[], vec![]);
    bench.says(EDS, vec![resource(EDS, member, 3)], &[], vec![]);
    let header = header();
    let restored = decode(&bytes_of(&header, &bench.image()), header.written_at + SECOND * 15).unwrap();
    assert_eq!((&restored.header, restored.resources()), (&header, 3));
    let [clusters, endpoints] = &restored.types[..] else { panic!("{restored:?}") };
    let members = clusters.wildcard.as_ref().unwrap();
    assert_eq!(*members[0].resource, full);
    assert_eq!((&*members[0].server_version, members[0].left), ("v1", Some(SECOND * 45)), "I17");
    assert_eq!((&*members[1].server_version, members[1].left), ("v2", None));
    let (name, members) = &endpoints.globs[0];
    assert_eq!((name.as_str(), members[0].name.as_str()), (glob, member));
}

#[test]
fn rly_7_secrets_absences_and_parts_of_sets_are_not_written() {
    let mut bench = Bench::new();
    bench.watch(SDS, &["secret"]);
    let located = ResourceName::located("x", &Parameters::from([("k".to_owned(), "v".to_owned())]));
    bench.watch(EDS, &["x", "gone", "private", "awaited", located.as_str()]);
    bench.says(SDS, vec![resource(SDS, "secret", 1)], &[], vec![]);
    let private = Resource { do_not_cache: true, ..resource(EDS, "private", 1) };
    let error = |name: &str| ResourceError { name: name.into(), status: Status::new(Code::Internal, "no") };
    bench.says(EDS, vec![resource(EDS, "x", 1), private], &["gone"], vec![error("awaited")]);
    // The first response to a wildcard is larger than what is taken for a whole.
    bench.watch(CDS, &["*"]);
    let large = Any { type_url: url(CDS).shared(), value: Bytes::from(vec![0; 2 << 20]) };
    bench.says(CDS, vec![Resource { body: large, ..resource(CDS, "a", 1) }], &[], vec![]);
    let bytes = bytes_of(&header(), &bench.image());
    let restored = decode(&bytes, wall_now()).unwrap();
    assert_eq!(restored.types.len(), 1, "{restored:?}");
    let names: Vec<_> = restored.types[0].names.iter().map(|kept| kept.name.as_str()).collect();
    assert_eq!(names, ["x"]);
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!has(b"secret 1") && !has(b"private") && !has(b"gone"));
}

#[test]
fn nothing_is_nothing() {
    let mut bench = Bench::new();
    bench.watch(EDS, &["x"]);
    assert!(is_empty(&bench.image()));
    bench.says(EDS, vec![resource(EDS, "x", 1)], &[], vec![]);
    assert!(!is_empty(&bench.image()));
}

/// FP4: there is no change of one bit, and no cut, that is not found.
#[test]
fn fp_4_every_flipped_bit_and_every_cut_is_found() {
    let file = bytes_of(&header(), &small(1));
    let now = wall_now();
    assert!(decode(&file, now).is_ok());
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut bad = file.clone();
            bad[at] ^= 1 << bit;
            assert!(decode(&bad, now).is_err(), "bit {bit} of byte {at}");
        }
        assert!(decode(&file[..at], now).is_err(), "cut at {at}");
    }
    let longer = [&file[..], b"\0"].concat();
    assert!(decode(&longer, now).is_err());
}

#[test]
fn fp_4_a_fault_says_where_and_what_it_is() {
    let file = bytes_of(&header(), &small(1));
    let now = wall_now();
    let at = file.windows(3).position(|window| window == b"b 2").unwrap();
    let mut bad = file.clone();
    bad[at] = b'c';
    // The header, a type, the wildcard, `a` and then this one.
    assert_eq!(decode(&bad, now), Err(FormatError::Damaged { record: Some(4) }));
    assert_eq!(decode(b"", now), Err(FormatError::Foreign));
    assert_eq!(decode(b"a shopping list, perhaps", now), Err(FormatError::Foreign));
    let mut newer = file.clone();
    newer[8] = 2;
    assert_eq!(decode(&newer, now), Err(FormatError::Format(2)));
    assert_eq!(FormatError::Format(2).to_string(), "format 2 is not supported; this build reads format 1");
}

/// Whoever can write the file can make its checksums right: what is in it may be refused, and must not hurt.
#[test]
fn fp_4_a_file_with_right_checksums_and_wrong_contents_does_no_harm() {
    let file = bytes_of(&header(), &small(1));
    let (body, _) = file.split_at(file.len() - 32);
    for at in 12..body.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = body.to_vec();
            bad[at] = value;
            let whole = *blake3::hash(&bad).as_bytes();
            bad.extend(whole);
            let _ = decode(&bad, wall_now());
        }
    }
}

/// Found by the fuzz target `checkpoint_file`: one more than the largest count ended the process at its
/// start.
#[test]
fn fp_4_no_count_of_records_is_too_large() {
    let file = bytes_of(&header(), &small(1));
    // The last record ends with its count and its checksum; the checksum of the file follows.
    let (body, _) = file.split_at(file.len() - 32);
    let mut bad = body.to_vec();
    bad[body.len() - 16..body.len() - 8].fill(0xff);
    let whole = *blake3::hash(&bad).as_bytes();
    bad.extend(whole);
    assert!(matches!(decode(&bad, wall_now()), Err(FormatError::Damaged { record: Some(_) })));
}

#[test]
fn fp_6_a_clock_that_jumped_deletes_nothing_without_a_time_to_live() {
    let mut bench = Bench::new();
    bench.watch(CDS, &["*"]);
    bench.watch(EDS, &["x", "short"]);
    bench.says(CDS, vec![resource(CDS, "a", 1)], &[], vec![]);
    let short = Resource { ttl: Some(SECOND * 60), ..resource(EDS, "short", 1) };
    bench.says(EDS, vec![resource(EDS, "x", 1), short], &[], vec![]);
    let header = header();
    let file = bytes_of(&header, &bench.image());
    let ten_years = SECOND * 86_400 * 3650;
    for now in [header.written_at + ten_years, header.written_at - ten_years, UNIX_EPOCH] {
        let restored = decode(&file, now).unwrap();
        assert_eq!(restored.types[0].wildcard.as_ref().unwrap().len(), 1);
        let names: Vec<_> = restored.types[1].names.iter().map(|kept| kept.name.as_str()).collect();
        assert_eq!(names, ["x"], "TTL-8, or nobody knows what is left of it");
    }
}

/// A member that ran out left its set; of one of which nobody knows, the set is no longer known either.
#[test]
fn fp_6_a_set_is_whole_without_what_ran_out_only() {
    let mut bench = Bench::new();
    bench.watch(CDS, &["*"]);
    let short = Resource { ttl: Some(SECOND * 60), ..resource(CDS, "short", 1) };
    bench.says(CDS, vec![resource(CDS, "a", 1), short, resource(CDS, "z", 1)], &[], vec![]);
    let header = header();
    let file = bytes_of(&header, &bench.image());
    let members = |now| {
        let types = decode(&file, now).unwrap().types;
        types.first().and_then(|restored| restored.wildcard.as_ref().map(Vec::len))
    };
    assert_eq!(members(header.written_at + SECOND), Some(3));
    assert_eq!(members(header.written_at + SECOND * 61), Some(2));
    assert_eq!(members(header.written_at - SECOND), None);
}

/// The same bytes under another time to live, or under none, are the same resource to whoever holds it.
#[test]
fn i17_the_time_to_live_that_was_stated_last_is_written() {
    let mut bench = Bench::new();
    bench.watch(CDS, &["*"]);
    let with = |ttl: Option<u32>| Resource { ttl: ttl.map(|ttl| SECOND * ttl), ..resource(CDS, "a", 1) };
    for (first, last) in [(Some(60), None), (None, Some(60)), (Some(60), Some(90))] {
        bench.says(CDS, vec![with(first)], &[], vec![]);
        bench.says(CDS, vec![with(last)], &[], vec![]);
        let header = header();
        let restored = decode(&bytes_of(&header, &bench.image()), header.written_at + SECOND * 15).unwrap();
        let members = restored.types[0].wildcard.as_ref().unwrap();
        assert_eq!(members.len(), 1, "the set is whole");
        assert_eq!(members[0].left, last.map(|ttl| SECOND * (ttl - 15)));
        assert_eq!(members[0].resource.ttl, last.map(|ttl| SECOND * ttl));
    }
}

/// A source begins with its first client, which may be long after everything was read.
#[test]
fn i17_a_time_to_live_goes_on_until_the_first_client_comes() {
    let mut bench = Bench::new();
    bench.watch(CDS, &["*"]);
    bench.watch(EDS, &["short"]);
    let short = |message| Resource { ttl: Some(SECOND * 60), ..resource(message, "short", 1) };
    bench.says(CDS, vec![resource(CDS, "a", 1), short(CDS)], &[], vec![]);
    bench.says(EDS, vec![short(EDS)], &[], vec![]);
    let header = header();
    let restored = Arc::new(decode(&bytes_of(&header, &bench.image()), header.written_at).unwrap());
    let left_after = |elapsed| {
        let types = restored.later(elapsed).types.clone();
        let members =
            types[0].wildcard.as_ref().map(|members| members.iter().map(|kept| kept.left).collect());
        (members, types[1].names.iter().map(|kept| kept.left).collect::<Vec<_>>())
    };
    let left = Some(SECOND * 50);
    assert_eq!(left_after(SECOND * 10), (Some(vec![None, left]), vec![left]));
    assert_eq!(left_after(SECOND * 60), (Some(vec![None]), vec![]), "TTL-8");
}

#[test]
fn a_failing_sink_ends_the_writing() {
    let result = encode(&header(), &small(1), &mut |_| Err(io::Error::from(io::ErrorKind::StorageFull)));
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn the_name_of_a_file_tells_sources_apart() {
    let identity = header().identity;
    let others = [
        Identity { list: "xds_servers2".into(), ..identity.clone() },
        Identity { list: "xds_serverscp:1".into(), server: "".into(), ..identity.clone() },
        Identity { server: "cp:2".into(), ..identity.clone() },
        Identity { class: [9; 32], ..identity.clone() },
    ];
    assert!(others.iter().all(|other| other.file_name() != identity.file_name()));
    assert_eq!(identity.file_name(), header().identity.file_name());
}
