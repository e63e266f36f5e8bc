//! Bootstraps for clients of the relay: the configuration with which Envoy and gRPC find it.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;

use crate::config::{Address, Endpoint, ListenerTemplates, parse_endpoint};

/// The identity that the client will state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNode {
    pub id: String,
    pub cluster: String,
}

/// The files with which a client speaks TLS to the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapTls {
    /// The authorities of the relay's certificate.
    pub authorities: PathBuf,
    /// The client's own certificate and key.
    pub pair: Option<(PathBuf, PathBuf)>,
}

/// The gRPC library of a client. Libraries read different parts of a bootstrap (docs/grpc.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// grpc-go
    Go,
    /// grpc-java, also for Kotlin
    Java,
    /// grpc-js-xds
    Node,
    /// C++, Python, Ruby and PHP
    #[value(name = "c-core", aliases = ["cpp", "c++", "python", "ruby", "php"])]
    CCore,
}

impl Language {
    /// Whether a client can reach the relay by the files.
    ///
    /// # Errors
    /// The lack of the library, and the remedy.
    pub fn check(self, tls: Option<&BootstrapTls>) -> Result<(), &'static str> {
        match (self, tls) {
            (Language::Node, Some(_)) => Err("grpc-js-xds has no TLS towards a control plane; \
                 give these clients a listener in plaintext, on a unix socket or the loopback interface"),
            (Language::Java, Some(BootstrapTls { pair: Some(_), .. })) => {
                Err("grpc-java shows a control plane no client certificate; \
                 give these clients a listener that does not ask for one (`client_certificate`), or a unix socket")
            }
            _ => Ok(()),
        }
    }

    /// The step beside the bootstrap.
    pub fn advice(self, tls: Option<&BootstrapTls>) -> Option<&'static str> {
        (self == Language::Java && tls.is_some()).then_some(
            "grpc-java reads no files of `tls`: put the authority of --ca into the trust store of the JVM \
             (-Djavax.net.ssl.trustStore=FILE)",
        )
    }

    /// The languages for which a bootstrap without a language does not work.
    pub fn advice_to_all(tls: Option<&BootstrapTls>) -> Option<&'static str> {
        tls.map(|_| {
            "this works in Go and in C++, Python, Ruby and PHP; \
             for Java and Node see `--language java` and `--language node`"
        })
    }
}

/// Options of a gRPC bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcOptions {
    pub node: ClientNode,
    /// `None`: for all languages.
    pub language: Option<Language>,
    /// `None`: plaintext.
    pub tls: Option<BootstrapTls>,
    /// The authorities of `xdstp:` names that the relay serves.
    pub authorities: Vec<String>,
    pub templates: ListenerTemplates,
}

/// Options of an Envoy bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyOptions {
    pub node: ClientNode,
    /// SotW instead of delta.
    pub is_sotw: bool,
    /// The port of Envoy's own admin listener on loopback.
    pub admin_port: u16,
    /// `None`: plaintext.
    pub tls: Option<BootstrapTls>,
}

/// The address of a listener for a client on the same host. A listener on every interface is reachable over
/// loopback.
pub fn local_endpoint(address: &Address) -> Endpoint {
    match address {
        Address::Unix { path, .. } => Endpoint::Unix(path.clone()),
        Address::Tcp(address) => {
            let ip = match address.ip() {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            Endpoint::Tcp { host: ip.to_string(), port: address.port() }
        }
    }
}

/// The address in `text`, `HOST:PORT` or `unix:PATH`, for clients elsewhere.
///
/// # Errors
/// The expected forms.
pub fn other_endpoint(text: &str) -> Result<Endpoint, &'static str> {
    const FORMS: &str = "HOST:PORT or unix:PATH";
    match parse_endpoint(text) {
        // A client has another working directory.
        Some(Endpoint::Unix(path)) if !path.is_absolute() => Err("HOST:PORT, or unix: and an absolute path"),
        endpoint => endpoint.ok_or(FORMS),
    }
}

/// A bootstrap for Envoy: YAML.
pub fn envoy(relay: &Endpoint, options: &EnvoyOptions) -> String {
    let api_type = if options.is_sotw { "GRPC" } else { "DELTA_GRPC" };
    let id = quoted(&options.node.id);
    let cluster = quoted(&options.node.cluster);
    let mut yaml = format!(
        "\
node:
  id: {id}
  cluster: {cluster}
dynamic_resources:
  ads_config:
    api_type: {api_type}
    transport_api_version: V3
    # Otherwise every request, ACKs included, repeats the node: some 60 KB.
    set_node_on_first_message_only: true
    grpc_services:
      - envoy_grpc: {{ cluster_name: sluice }}
  cds_config: {{ resource_api_version: V3, ads: {{}} }}
  lds_config: {{ resource_api_version: V3, ads: {{}} }}
static_resources:
  clusters:
    - name: sluice
"
    );
    yaml.push_str(&envoy_cluster(relay));
    if let Some(tls) = &options.tls {
        yaml.push_str(&envoy_tls(relay, tls));
    }
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, options.admin_port));
    // Writing to a String can't fail.
    let _ = write!(
        yaml,
        "\
admin:
  address:
    socket_address: {{ address: {}, port_value: {} }}
",
        admin.ip(),
        admin.port()
    );
    yaml
}

/// The definition of the cluster, after its name.
fn envoy_cluster(relay: &Endpoint) -> String {
    let (discovery, address) = match relay {
        Endpoint::Tcp { host, port } => {
            let discovery = if host.parse::<IpAddr>().is_ok() { "STATIC" } else { "STRICT_DNS" };
            (discovery, format!("socket_address: {{ address: {}, port_value: {port} }}", quoted(host)))
        }
        Endpoint::Unix(path) => ("STATIC", format!("pipe: {{ path: {} }}", quoted(&path.to_string_lossy()))),
    };
    // A pipe has no TCP, and no peer that could vanish silently.
    let keepalive = match relay {
        Endpoint::Tcp { .. } => {
            "      upstream_connection_options:
        tcp_keepalive: { keepalive_time: 5, keepalive_interval: 3, keepalive_probes: 3 }
"
        }
        Endpoint::Unix(_) => "",
    };
    format!(
        "      type: {discovery}
      connect_timeout: 3s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config:
            http2_protocol_options: {{}}
{keepalive}      load_assignment:
        cluster_name: sluice
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    {address}
"
    )
}

/// TLS of the cluster. Envoy as a client stops at TLS 1.2 unless told otherwise (TLS-2), and checks no name
/// unless told which.
fn envoy_tls(relay: &Endpoint, tls: &BootstrapTls) -> String {
    let file = |path: &Path| quoted(&path.to_string_lossy());
    let certificate = tls.pair.as_ref().map_or_else(String::new, |(certificate, key)| {
        format!(
            "            tls_certificates:
              - certificate_chain: {{ filename: {} }}
                private_key: {{ filename: {} }}
",
            file(certificate),
            file(key)
        )
    });
    let name = match relay {
        Endpoint::Tcp { host, .. } => {
            let kind = if host.parse::<IpAddr>().is_ok() { "IP_ADDRESS" } else { "DNS" };
            let host = quoted(host);
            format!(
                "              match_typed_subject_alt_names:
                - {{ san_type: {kind}, matcher: {{ exact: {host} }} }}
"
            )
        }
        Endpoint::Unix(_) => String::new(),
    };
    format!(
        "      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2]
            tls_params: {{ tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3 }}
{certificate}            validation_context:
              trusted_ca: {{ filename: {} }}
{name}",
        file(&tls.authorities)
    )
}

/// The channel credentials of a gRPC bootstrap (A65).
fn channel_creds(options: &GrpcOptions) -> serde_json::Value {
    let Some(tls) = &options.tls else { return json!([{ "type": "insecure" }]) };
    if options.language == Some(Language::Java) {
        return json!([{ "type": "tls" }]);
    }
    let mut config = json!({ "ca_certificate_file": tls.authorities, "refresh_interval": "600s" });
    if let (Some((certificate, key)), Some(config)) = (&tls.pair, config.as_object_mut()) {
        config.insert("certificate_file".to_owned(), json!(certificate));
        config.insert("private_key_file".to_owned(), json!(key));
    }
    json!([{ "type": "tls", "config": config }])
}

/// A bootstrap for gRPC (`GRPC_XDS_BOOTSTRAP`): JSON.
pub fn grpc(relay: &Endpoint, options: &GrpcOptions) -> String {
    let GrpcOptions { node, authorities, templates, .. } = options;
    let mut bootstrap = serde_json::Map::new();
    let server = json!({
        "server_uri": relay.to_string(),
        "channel_creds": channel_creds(options),
        "server_features": ["xds_v3"],
    });
    bootstrap.insert("xds_servers".to_owned(), json!([server]));
    // grpc-js refuses a node without a locality.
    let node = json!({ "id": node.id, "cluster": node.cluster, "locality": {} });
    bootstrap.insert("node".to_owned(), node);
    // An entry without servers has those above (A47): the relay. Without a template, gRPC uses the default
    // one.
    let entry = |name: &String| match templates.authorities.get(name) {
        Some(template) => json!({ "client_listener_resource_name_template": template }),
        None => json!({}),
    };
    let entries: serde_json::Map<_, _> = authorities.iter().map(|name| (name.clone(), entry(name))).collect();
    if !entries.is_empty() {
        bootstrap.insert("authorities".to_owned(), entries.into());
    }
    let others = [
        ("client_default_listener_resource_name_template", &templates.client_default),
        ("server_listener_resource_name_template", &templates.server),
    ];
    for (key, template) in others {
        bootstrap.extend(template.as_ref().map(|template| (key.to_owned(), json!(template))));
    }
    format!("{:#}\n", serde_json::Value::from(bootstrap))
}

/// A JSON string, which is always valid YAML, too.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn node() -> ClientNode {
        ClientNode { id: "a: \"b\"".into(), cluster: "c".into() }
    }

    fn options(tls: Option<BootstrapTls>) -> GrpcOptions {
        let (authorities, templates) = Default::default();
        GrpcOptions { node: node(), language: None, tls, authorities, templates }
    }

    #[test]
    fn a_language_gets_what_its_library_reads() {
        let with_pair =
            |pair: Option<(PathBuf, PathBuf)>| BootstrapTls { authorities: "ca.crt".into(), pair };
        let (plain, mutual) = (with_pair(None), with_pair(Some(("c.crt".into(), "c.key".into()))));
        let languages = [Language::Go, Language::CCore, Language::Java, Language::Node];
        let accepts = |tls: Option<&BootstrapTls>| languages.map(|language| language.check(tls).is_ok());
        assert_eq!(accepts(None), [true, true, true, true]);
        assert_eq!(accepts(Some(&plain)), [true, true, true, false]);
        assert_eq!(accepts(Some(&mutual)), [true, true, false, false]);
        let relay = Endpoint::Tcp { host: "relay".into(), port: 1 };
        let creds = |language| {
            let text =
                grpc(&relay, &GrpcOptions { language: Some(language), ..options(Some(plain.clone())) });
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            json["xds_servers"][0]["channel_creds"][0].clone()
        };
        assert_eq!(creds(Language::Java), json!({ "type": "tls" }));
        assert_eq!(creds(Language::Go)["config"]["ca_certificate_file"], "ca.crt");
        let advised = languages.map(|language| language.advice(Some(&plain)).is_some());
        assert_eq!(advised, [false, false, true, false]);
    }

    fn envoy_of(address: &str, is_sotw: bool) -> serde_json::Value {
        let relay = local_endpoint(&Address::Tcp(address.parse().unwrap()));
        read(&envoy(&relay, &EnvoyOptions { node: node(), is_sotw, admin_port: 9901, tls: None }))
    }

    fn read(yaml: &str) -> serde_json::Value {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn envoy_gets_everything_over_ads() {
        let yaml = envoy_of("0.0.0.0:18000", false);
        let ads = &yaml["dynamic_resources"]["ads_config"];
        assert_eq!(ads["api_type"], "DELTA_GRPC");
        assert_eq!(ads["set_node_on_first_message_only"], true);
        assert_eq!(envoy_of("0.0.0.0:18000", true)["dynamic_resources"]["ads_config"]["api_type"], "GRPC");
        for config in ["cds_config", "lds_config"] {
            let expected = json!({ "resource_api_version": "V3", "ads": {} });
            assert_eq!(yaml["dynamic_resources"][config], expected);
        }
        assert_eq!(yaml["node"], json!({ "id": "a: \"b\"", "cluster": "c" }));
        assert_eq!(yaml["admin"]["address"]["socket_address"]["port_value"], 9901);
    }

    #[test]
    fn envoy_reaches_the_listener_from_its_own_host() {
        let address = |yaml: serde_json::Value| {
            let cluster = &yaml["static_resources"]["clusters"][0];
            assert_eq!(cluster["type"], "STATIC");
            cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"].clone()
        };
        for (listener, host) in [("0.0.0.0:1", "127.0.0.1"), ("[::]:1", "::1"), ("10.0.0.1:1", "10.0.0.1")] {
            let expected = json!({ "socket_address": { "address": host, "port_value": 1 } });
            assert_eq!(address(envoy_of(listener, false)), expected);
        }
        let relay = local_endpoint(&Address::Unix { path: "/run/sluice".into(), mode: 0o660 });
        let yaml =
            read(&envoy(&relay, &EnvoyOptions { node: node(), is_sotw: false, admin_port: 1, tls: None }));
        assert_eq!(yaml["static_resources"]["clusters"][0].get("upstream_connection_options"), None);
        assert_eq!(address(yaml), json!({ "pipe": { "path": "/run/sluice" } }));
    }

    #[test]
    fn fed_1_grpc_gets_a_bootstrap() {
        let read = |relay: &Endpoint| -> serde_json::Value {
            serde_json::from_str(&grpc(relay, &options(None))).unwrap()
        };
        let expected = |uri: &str| {
            json!({
                "xds_servers": [{
                    "server_uri": uri,
                    "channel_creds": [{ "type": "insecure" }],
                    "server_features": ["xds_v3"],
                }],
                "node": { "id": "a: \"b\"", "cluster": "c", "locality": {} },
            })
        };
        let tcp = Endpoint::Tcp { host: "::1".into(), port: 18000 };
        assert_eq!(read(&tcp), expected("[::1]:18000"));
        assert_eq!(read(&Endpoint::Unix("/run/sluice".into())), expected("unix:/run/sluice"));
    }

    #[test]
    fn tls_2_a_bootstrap_asks_for_tls_1_3_and_names_the_relay() {
        let pair = Some(("c.crt".into(), "c.key".into()));
        let tls = BootstrapTls { authorities: "ca.crt".into(), pair };
        let relay = Endpoint::Tcp { host: "127.0.0.1".into(), port: 1 };
        let of_envoy = EnvoyOptions { node: node(), is_sotw: false, admin_port: 1, tls: Some(tls.clone()) };
        let yaml = read(&envoy(&relay, &of_envoy));
        let context = &yaml["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
        let context = &context["common_tls_context"];
        assert_eq!(context["tls_params"]["tls_maximum_protocol_version"], "TLSv1_3");
        assert_eq!(context["tls_certificates"][0]["private_key"]["filename"], "c.key");
        let name = json!({ "san_type": "IP_ADDRESS", "matcher": { "exact": "127.0.0.1" } });
        assert_eq!(context["validation_context"]["match_typed_subject_alt_names"][0], name);

        let template = "xdstp://b.example/envoy.config.listener.v3.Listener/clients/%s";
        let mut options = options(Some(tls));
        options.authorities = ["a.example", "b.example", ""].map(str::to_owned).into();
        options.templates.authorities.insert("b.example".into(), template.into());
        let grpc: serde_json::Value = serde_json::from_str(&super::grpc(&relay, &options)).unwrap();
        assert_eq!(
            grpc["authorities"],
            json!({
                "a.example": {}, "b.example": { "client_listener_resource_name_template": template }, "": {},
            })
        );
        let config = json!({
            "ca_certificate_file": "ca.crt", "certificate_file": "c.crt", "private_key_file": "c.key",
            "refresh_interval": "600s",
        });
        assert_eq!(grpc["xds_servers"][0]["channel_creds"], json!([{ "type": "tls", "config": config }]));
    }
}
