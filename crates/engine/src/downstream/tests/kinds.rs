//! The types on a stream, by the method of the stream.

use super::bench::Routes;
use crate::Time;
use crate::authorization::Grant;
use crate::collection::HashSeed;
use crate::downstream::{Limits, Session};
use sluice_xds::{ApiVersion, Code, Method, Request, SotwRequest, Status, StreamKind};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const CDS_V2: &str = "type.googleapis.com/envoy.api.v2.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const STREAM_CLUSTERS: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters";
const STREAM_CLUSTERS_V2: &str = "/envoy.api.v2.ClusterDiscoveryService/StreamClusters";

/// The type of a first request with this type URL, on a stream of this method.
fn ask(path: &str, v2: bool, type_url: &str) -> Result<String, Status> {
    let method = Method::of_path(path).unwrap();
    let sluice_xds::Call::Stream(variant) = method.call else { panic!("{path} opens no stream") };
    let kind = StreamKind { service: method.service, api: method.api, v2, ..variant.into() };
    let mut session = Session::new(kind, Limits::default(), HashSeed(7), 1, Grant::everything());
    let request = SotwRequest { type_url: type_url.to_owned(), ..SotwRequest::default() };
    let mut routes = Routes { legacy: true, ..Routes::default() };
    let taken = session.request(&Request::Sotw(request), &mut routes, Time::ZERO)?;
    Ok(taken.type_url.as_str().to_owned())
}

#[test]
fn rpc_6_the_method_says_the_type() {
    assert_eq!(ask(STREAM_CLUSTERS, false, "").unwrap(), CDS);
    assert_eq!(ask(STREAM_CLUSTERS, false, CDS).unwrap(), CDS);
    let status = ask(STREAM_CLUSTERS, false, EDS).unwrap_err();
    assert_eq!(status.code, Code::InvalidArgument);
    assert!(status.message.contains(EDS) && status.message.contains(CDS), "{status}");
}

#[test]
fn rel_5_a_session_obeys_other_limits_from_its_next_request_on() {
    let mut session =
        Session::new(sluice_xds::Variant::Sotw, Limits::default(), HashSeed(7), 1, Grant::everything());
    let ask = |session: &mut Session, type_url: &str| {
        let resource_names = vec!["a".into(), "b".into()];
        let request = SotwRequest { type_url: type_url.to_owned(), resource_names, ..SotwRequest::default() };
        session.request(&Request::Sotw(request), &mut Routes::default(), Time::ZERO).map(|_| ())
    };
    ask(&mut session, EDS).unwrap();
    session.configure(Limits { names_per_stream: 3, ..Limits::default() }, &|_| None);
    assert_eq!(ask(&mut session, CDS).unwrap_err().code, Code::ResourceExhausted);
}

#[test]
fn typ_4_the_version_of_the_method_is_not_that_of_the_type() {
    assert_eq!(ask(STREAM_CLUSTERS_V2, true, "").unwrap(), CDS_V2);
    assert_eq!(ask(STREAM_CLUSTERS_V2, true, CDS).unwrap(), CDS);
    assert_eq!(ask(STREAM_CLUSTERS, true, CDS_V2).unwrap(), CDS_V2);
    assert_eq!(ask(ADS, true, CDS_V2).unwrap(), CDS_V2);
}

#[test]
fn typ_5_types_of_v2_are_refused_by_name_where_they_are_off() {
    for path in [ADS, STREAM_CLUSTERS] {
        let status = ask(path, false, CDS_V2).unwrap_err();
        assert_eq!(status.code, Code::Unimplemented);
        assert!(status.message.contains("`v2: true`"), "{status}");
    }
    assert_eq!(Method::of_path(STREAM_CLUSTERS_V2).unwrap().api, ApiVersion::V2);
}
