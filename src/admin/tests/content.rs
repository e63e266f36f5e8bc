//! Resources with their contents (ADM-12).

use super::*;
use crate::admin::ContentMode;
use crate::driver::api::content::{CachedCopy, ContentView, HeldSource, UpstreamVersions};
use crate::driver::api::status::names_type;
use sluice_xds::{Any, Node, Resource};

const CANARY: &str = "CANARY-canary";

/// A name that needs escapes.
const URL: &str = "xdstp://authority/envoy.config.cluster.v3.Cluster/a/b?shard=1";

impl ContentView for FakeView {
    /// Two sources have different versions of each resource.
    fn copies(&self, type_name: &str, name: &str) -> Vec<CachedCopy> {
        let types = [CLUSTER, SECRET].map(TypeUrl::of_message);
        let Some(type_url) = types.into_iter().find(|of| names_type(type_name, of)) else { return vec![] };
        if !self.is_old_gone && ["a", "b"].contains(&name) {
            return [(1, "cp-1", "1s"), (2, "cp-2", "2s")]
                .map(|(source, server, timeout)| copy(&type_url, source, server, name, timeout))
                .into();
        }
        if ![URL, "r0", "a/b"].contains(&name) {
            return vec![];
        }
        [(3, "cp-1", "1s"), (4, "cp-2", "2s")]
            .map(|(source, server, timeout)| copy(&type_url, source, server, name, timeout))
            .into()
    }

    fn held_sources(&self) -> Vec<HeldSource> {
        let held = |(number, status): (usize, &Arc<SourceStatus>)| HeldSource {
            number: number as u64,
            status: status.clone(),
            node: Node { id: status.shown.to_string(), ..Node::default() },
        };
        self.sources.iter().enumerate().map(held).collect()
    }

    /// A cluster, a name without a resource, and a Secret.
    fn held(&self, source: u64) -> Box<dyn Iterator<Item = CachedCopy> + Send + '_> {
        let [cluster, secret] = [CLUSTER, SECRET].map(TypeUrl::of_message);
        let mut lost = copy(&cluster, source, "cp-1", "lost", "1s");
        lost.resource = None;
        lost.status.state = ClientStatus::DoesNotExist;
        lost.status.error = Some(Status::new(Code::NotFound, "gone"));
        let r0 = |timeout: &str| copy(&cluster, source, "cp-1", "r0", timeout);
        // Requested alone, and a member of the wildcard, too.
        let copies = [r0("1s"), lost, copy(&secret, source, "cp-1", "key", ""), r0("9s")];
        Box::new(copies.into_iter())
    }

    fn candidate<'a>(
        &'a self,
        _: u64,
        units: &[u64],
        _: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = CachedCopy> + Send + 'a> {
        self.held(units.first().copied().unwrap_or_default())
    }

    fn upstream_versions(&self, _: u64) -> BoxFuture<'_, UpstreamVersions> {
        let key = (TypeUrl::of_message(CLUSTER), ResourceName::new("r0"));
        std::future::ready([(key, "upstream-7".into())].into_iter().collect()).boxed()
    }

    fn nodes(&self) -> Box<dyn Iterator<Item = (u64, Arc<Node>)> + Send + '_> {
        Box::new((0..SESSIONS).map(|n| {
            let status = session(n);
            (status.id, Arc::new(Node { id: status.node_id.to_string(), ..Node::default() }))
        }))
    }
}

pub(super) fn copy(type_url: &TypeUrl, source: u64, server: &str, name: &str, timeout: &str) -> CachedCopy {
    let body = format!(
        r#"{{"resources": [{{"@type": "{}", "name": "{name}", {} }}]}}"#,
        type_url.as_str(),
        match type_url.is_secret() {
            true => format!(r#""generic_secret": {{"secret": {{"inline_string": "{CANARY}"}}}}"#),
            false => format!(
                r#""connect_timeout": "{timeout}", "transport_socket": {{"name": "tls", "typed_config": {{
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {{"tls_certificates": [{{"private_key": {{"inline_string": "{CANARY}"}}}}]}} }} }}"#
            ),
        }
    );
    let parsed = sluice_json::parse_json(&body).unwrap();
    let value = parsed.resources[0].as_ref().unwrap().resource.as_ref().unwrap().body.value.clone();
    let resource = Resource {
        name: ResourceName::new(name),
        version: Version(source.into()),
        body: Any { type_url: type_url.shared(), value },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    let status = ResourceStatus {
        name: resource.name.clone(),
        version: Some(resource.version),
        server: server.into(),
        class: format!("class-of-{server}").into(),
        ..resource_status(type_url)
    };
    CachedCopy { source, list: "xds_servers".into(), status, resource: Some(Arc::new(resource)) }
}

fn resource_status(type_url: &TypeUrl) -> ResourceStatus {
    resource(type_url, 1)
}

fn escaped(name: &str) -> String {
    name.replace(':', "%3A").replace('/', "%2F").replace('?', "%3F")
}

#[tokio::test]
async fn adm_12_a_resource_is_shown_without_secrets_from_all_sources() {
    let admin = Fixture::start(vec![], false);
    let answer = admin.get("/resources/Cluster/r0").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains(CANARY), "{}", answer.body);
    let shown = answer.json();
    assert_eq!((&shown["type"], &shown["content"]), (&CLUSTER.into(), &"redacted".into()));
    let [one, other] = shown["copies"].as_array().unwrap().as_slice() else { panic!("{shown}") };
    assert_eq!(
        (&one["source"], &one["server"], &one["list"]),
        (&3.into(), &"cp-1".into(), &"xds_servers".into())
    );
    assert_eq!(
        (&one["resource"]["connect_timeout"], &other["resource"]["connect_timeout"]),
        (&"1s".into(), &"2s".into())
    );
    let socket = &one["resource"]["transport_socket"]["typed_config"];
    assert_eq!(socket["common_tls_context"]["tls_certificates"][0]["private_key"], "[redacted 15 B]");
    for source in ["4", "cp-2", "class-of-cp-2"] {
        let one = admin.get(&format!("/resources/Cluster/r0?source={source}")).await.json();
        assert_eq!(one["copies"].as_array().unwrap().len(), 1, "{source}");
        assert_eq!(one["copies"][0]["server"], "cp-2");
    }
    let yaml = admin.get("/resources/Cluster/r0?format=yaml").await;
    assert!(
        yaml.head.contains("application/yaml") && yaml.body.contains("connect_timeout: 1s"),
        "{}",
        yaml.body
    );
    assert!(!yaml.body.contains(CANARY));
    let sizes = admin.get("/resources/Cluster/r0?format=sizes").await.json();
    assert_eq!(sizes["copies"][0]["sizes"]["name"], 2);
    assert_eq!(sizes["copies"][0].get("resource"), None);
}

#[tokio::test]
async fn adm_12_content_can_be_off_and_of_a_secret_there_is_none() {
    let admin = Fixture::start(vec![], false);
    for format in ["json", "yaml", "sizes"] {
        let answer = admin.get(&format!("/resources/Secret/r0?format={format}")).await;
        assert_eq!(answer.status, 200);
        for hidden in [CANARY, "redacted ", "version", "bytes", "sizes", "\"resource\"", "00000003"] {
            assert!(!answer.body.contains(hidden), "{hidden} in {}", answer.body);
        }
    }
    let settings = AdminSettings { content: ContentMode::Off, ..AdminSettings::default() };
    let admin = Fixture::with(vec![], settings, None);
    let off = admin.get("/resources/Cluster/r0").await.json();
    assert_eq!((&off["content"], off["copies"][0].get("resource")), (&"off".into(), None));
    assert_eq!(off["copies"][0]["version"], Version(3).to_string());
    let sizes = admin.get("/resources/Cluster/r0?format=sizes").await.json();
    assert_eq!(sizes["copies"][0]["sizes"]["name"], 2);
}

#[tokio::test]
async fn any_name_and_any_spelling_of_a_type_can_be_asked_for() {
    let admin = Fixture::start(vec![], false);
    let long = escaped(TypeUrl::of_message(CLUSTER).as_str());
    for target in [
        "/resources/Cluster/a/b".to_owned(),
        "/resources/Cluster/a%2Fb".to_owned(),
        format!("/resources/{CLUSTER}/{}", URL.replace('?', "%3F")),
        format!("/resources/{long}/{}", escaped(URL)),
    ] {
        let answer = admin.get(&target).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
    }
}

#[tokio::test]
async fn an_unknown_resource_is_answered_with_the_nearest() {
    let admin = Fixture::start(vec![], false);
    for (target, status, text) in [
        ("/resources/Cluster/r00", 404, "the nearest of 5 names: \"r0\""),
        ("/resources/Clutser/r0", 404, "similar types: Cluster"),
        (
            "/resources/Cluster/r0?source=cp-9",
            404,
            "sources with a copy: 3 (cp-1, class class-of-cp-1), 4 (cp-2",
        ),
        ("/resources/Cluster/r0?fromat=json", 400, "allowed: source, format"),
        ("/resources/Cluster/r0?format=xml", 400, "allowed: json, yaml, sizes"),
    ] {
        let answer = admin.get(target).await;
        assert_eq!((answer.status, answer.body.contains(text)), (status, true), "{}", answer.body);
    }
    assert_eq!(admin.get("/resources/Cluster/").await.status, 404);
}
