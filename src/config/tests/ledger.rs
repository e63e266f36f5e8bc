//! `ledger`.

use super::*;
use crate::client::GrpcAddress;
use crate::kubernetes::ClusterAccess;
use crate::ledger::{EtcdSettings, EtcdUser, KubernetesSettings, LedgerStore};
use sluice_setting::seconds;

fn etcd(text: &str) -> (LedgerSettings, EtcdSettings) {
    let ledger = with_server(text).ledger.unwrap();
    let LedgerStore::Etcd(etcd) = ledger.store.clone() else { panic!("{ledger:?}") };
    (ledger, *etcd)
}

fn faults(text: &str) -> Vec<String> {
    messages(&read(&format!("{SERVER}{text}")).unwrap_err())
}

#[test]
fn ldg_1_a_ledger_has_a_store_and_a_name() {
    assert_eq!(with_server("ledger: local").ledger, None);
    let (ledger, store) = etcd("ledger: {etcd: {endpoints: ['etcd-0:2379', 'unix:run/etcd']}}");
    assert_eq!((ledger.replica.as_str(), ledger.lease), ("host-1", seconds(15)));
    assert!(ledger.newcomers_wait);
    let with_join = |word| etcd(&format!("ledger: {{join: {word}, etcd: {{endpoints: ['a:1']}}}}")).0;
    assert_eq!(["wait", "live"].map(|word| with_join(word).newcomers_wait), [true, false]);
    let addresses = [
        GrpcAddress::Tcp { host: "etcd-0".into(), port: 2379 },
        GrpcAddress::Unix("/etc/sluice/run/etcd".into()),
    ];
    assert_eq!(store.endpoints, addresses);
    assert_eq!((store.prefix.as_str(), store.tls, store.user), ("/sluice/", None, None));
    let more = "tls: {ca_certificate_file: ca.crt}, user: {name: jo, password_file: secret}, prefix: /eu/";
    let (ledger, store) =
        etcd(&format!("ledger: {{replica: a.b-1, lease: 5s, etcd: {{endpoints: ['a:1'], {more}}}}}"));
    assert_eq!((ledger.replica.as_str(), ledger.lease, store.prefix.as_str()), ("a.b-1", seconds(5), "/eu/"));
    let user = EtcdUser { name: "jo".into(), password_file: "/etc/sluice/secret".into() };
    assert_eq!((store.tls.is_some(), store.user), (true, Some(user)));
}

#[test]
fn ldg_1_a_ledger_without_a_store_is_refused() {
    let faults = |section: &str| {
        let all = faults(&format!("ledger: {section}"));
        all.into_iter().map(|fault| fault.trim_start_matches("ledger.").to_owned()).collect::<Vec<_>>()
    };
    let stores = [
        "ledger: found none or several; expected one of `etcd` and `kubernetes`; `ledger: local` shares nothing",
    ];
    assert_eq!(faults("{}"), stores);
    assert_eq!(faults("{etcd: {endpoints: ['a:1']}, kubernetes: {}}"), stores);
    let endpoints = "etcd.endpoints: missing; expected the addresses of an etcd, as [\"etcd-0:2379\"]";
    assert_eq!(faults("{etcd: {}}"), [endpoints]);
    assert_eq!(faults("{etcd: {endpoints: []}}"), [endpoints]);
    assert_eq!(
        faults("{etcd: {endpoints: ['http://a:1']}}"),
        ["etcd.endpoints[0]: found \"http://a:1\"; expected HOST:PORT or unix:PATH"]
    );
    assert_eq!(
        faults("{replica: a/b, etcd: {endpoints: ['a:1']}}"),
        ["replica: found \"a/b\"; expected a name of at most 253 letters, digits, `.`, `-` and `_`"]
    );
    assert_eq!(faults("{etcd: {endpoints: ['a:1'], user: {name: jo}}}").len(), 1);
    let join = faults("{join: now, etcd: {endpoints: ['a:1']}}");
    assert_eq!(join, ["join: found \"now\"; expected wait or live"]);
}

#[test]
fn ldg_1_a_ledger_in_a_cluster_has_a_namespace_and_a_name() {
    let kubernetes = |section: &str| match with_server(&format!("ledger: {section}")).ledger.unwrap().store {
        LedgerStore::Kubernetes(settings) => settings,
        other => panic!("{other:?}"),
    };
    let own = KubernetesSettings { access: ClusterAccess::default(), namespace: None, name: "sluice".into() };
    assert_eq!(kubernetes("{kubernetes: {}}"), own);
    let access =
        ClusterAccess { kubeconfig: Some("/etc/sluice/kubeconfig".into()), context: Some("west".into()) };
    let west = KubernetesSettings { access, namespace: Some("infra".into()), name: "eu".into() };
    let section = "{kubernetes: {kubeconfig: kubeconfig, context: west, namespace: infra, name: eu}}";
    assert_eq!(kubernetes(section), west);
    for (key, value) in [("namespace", "In_fra"), ("name", "-a"), ("name", "''")] {
        let found = value.trim_matches('\'');
        assert_eq!(
            faults(&format!("ledger: {{kubernetes: {{{key}: {value}}}}}")),
            [format!(
                "ledger.kubernetes.{key}: found {found:?}; expected a name of at most 63 lowercase letters, \
                 digits and `-`"
            )]
        );
    }
    assert_eq!(
        faults("ledger: {kubernetes: {context: west}}").len(),
        1,
        "a context needs the file with the context"
    );
}

#[test]
fn ldg_1_a_prefix_that_is_the_begin_of_others_is_warned_of() {
    let warnings = |prefix: &str| {
        let text = format!("{SERVER}ledger: {{etcd: {{endpoints: ['127.0.0.1:1']{prefix}}}}}");
        let warnings = read(&text).unwrap().warnings.into_iter();
        warnings.filter(|of| of.path == "ledger.etcd.prefix").map(|of| of.text).collect::<Vec<_>>()
    };
    let told = "the ledger has all keys that begin with \"/sluice/eu\", also those of another prefix like \"/sluice/eu2/\"; \
                end it with `/`";
    assert_eq!(warnings(", prefix: /sluice/eu"), [told]);
    assert!(warnings(", prefix: /sluice/eu/").is_empty() && warnings("").is_empty());
}

#[test]
fn ldg_1_an_etcd_without_tls_is_warned_of() {
    let warnings = |text: &str| read(&format!("{SERVER}{text}")).unwrap().warnings.len();
    let with = |endpoint: &str, more: &str| format!("ledger: {{etcd: {{endpoints: ['{endpoint}']{more}}}}}");
    let none = warnings("");
    assert_eq!(warnings(&with("etcd-0:2379", "")), none + 1);
    assert_eq!(warnings(&with("etcd-0:2379", ", tls: {}")), none);
    assert_eq!(warnings(&with("127.0.0.1:2379", "")), none);
}
