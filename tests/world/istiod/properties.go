package main

import (
	"fmt"
	"path"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// registry is what istiod reads in Kubernetes.
func (e *Everything) registry() {
	web := e.pods[0]
	for _, name := range []string{"n1", "n2", "region", "sub-zone"} {
		e.add("registry-on-"+name, web, at(name))
	}
	nowhere := e.add("registry-nowhere", web, at("nowhere"))
	for number, locality := range []*core.Locality{
		{Region: "r9", Zone: "z1"}, {Region: "r", Zone: "z2"}, {Region: "r", Zone: "z1", SubZone: "s1"},
	} {
		e.add(fmt.Sprintf("stated-locality-%d", number), nowhere, node(func(node *core.Node) { node.Locality = locality }))
	}
	e.add("registry-relabelled", web, relabelledTo("tls", "strict"))
	e.add("registry-account", web, func(pod *Pod) { pod.account = "other" })
	e.add("registry-port", web, func(pod *Pod) { pod.port = 9090 }, key("POD_PORTS", podPorts(9090)))
	e.add("registry-namespace", web, func(pod *Pod) { pod.namespace = "other" })
	e.add("registry-workload", web, func(pod *Pod) { pod.workload = "api" })
	e.add("machine-1", web, func(pod *Pod) { pod.isAbsent = true })
	e.add("machine-2", web, func(pod *Pod) { pod.isAbsent = true }, key("POD_PORTS", podPorts(9090)))
	for _, of := range [][2]string{
		{"sidecar", "selected"}, {"tls", "strict"}, {"tls", "off"}, {"policy", "selected"}, {"jwt", "selected"}, {"log", "selected"},
		{"filter", "selected"}, {"rule", "selected"}, {"source", "selected"},
		{"networking.istio.io/tunnel", "http"}, {"istio-locality", "r2.z9"},
		{"service.istio.io/canonical-name", "shop"}, {"service.istio.io/canonical-revision", "7"},
	} {
		e.add("label-"+path.Base(of[0]), web, label(of[0], of[1]))
	}
}

// metadata is every key that istiod reads, some that it does not read, and one that only an EnvoyFilter matches.
func (e *Everything) metadata() {
	web, yes := e.pods[0], "true"
	for _, of := range []struct {
		name  string
		value any
	}{
		{"TEAM", "red"}, {"TEAM", "blue"}, {"TEAM", 7}, {"HTTP10", "1"}, {"IDLE_TIMEOUT", "7s"}, {"DISABLE_HBONE_SEND", yes},
		{"MESH_ID", "mesh-2"}, {"HTTP_PROXY_PORT", "15080"}, {"INBOUND_LISTENER_EXACT_BALANCE", yes},
		{"OUTBOUND_LISTENER_EXACT_BALANCE", yes}, {"CLUSTER_ID", "other"}, {"NAMESPACE", "other"}, {"GENERATOR", "api"},
		{"credential", yes}, {"INTERCEPTION_MODE", "TPROXY"}, {"INTERCEPTION_MODE", "NONE"}, {"WORKLOAD_NAME", "other"},
		{"WORKLOAD_NAME", nil}, {"SERVICE_ACCOUNT", "other"}, {"DNS_CAPTURE", yes}, {"ENVOY_STATUS_PORT", 80},
		{"ENVOY_PROMETHEUS_PORT", 80}, {"ENVOY_SECURE_METRICS_PORT", 80}, {"ENVOY_SECURE_MERGED_METRICS_PORT", 80},
		{"ISTIO_VERSION", "1.27.0"}, {"ISTIO_VERSION", "1.31.1"}, {"ISTIO_VERSION", nil}, {"METADATA_DISCOVERY", yes},
		{"ENABLE_SELF_DISCOVERY", yes}, {"STATIC_LABELS", map[string]any{"sidecar": "selected"}}, {"LABELS", nil},
		{"LABELS", map[string]any{"app": "web", "version": "v1", "tls": "strict"}}, {"POD_PORTS", nil},
		{"ANNOTATIONS", map[string]any{"proxy.istio.io/config": "{}"}}, {"PROXY_CONFIG", nil},
		{"PROXY_CONFIG", proxyConfig("concurrency", 4)},
		{"PROXY_CONFIG", proxyConfig("proxyMetadata", map[string]any{"ISTIO_META_TEAM": "red"})},
		{"PROXY_CONFIG", proxyConfig("tracing", map[string]any{"sampling": 50})},
		{"PROXY_CONFIG", proxyConfig("proxyHeaders", map[string]any{"server": map[string]any{"value": "shop"}})},
		{"PROXY_CONFIG", proxyConfig("proxyHeaders", map[string]any{"preserveHttp1HeaderCase": true})},
		{"PROXY_CONFIG", proxyConfig("privateKeyProvider", map[string]any{"cryptomb": map[string]any{"pollDelay": "0.02s"}})},
		{"OWNER", "other"}, {"APP_CONTAINERS", "app"}, {"STS_PORT", "15463"}, {"PLATFORM_METADATA", map[string]any{"a": "b"}},
		{"CLOUDRUN_ADDR", "a.example"}, {"ISTIO_REVISION", "canary"}, {"ISTIO_PROXY_SHA", "0123"}, {"BASE", "/base"},
		{"WORKLOAD_IDENTITY_SOCKET_FILE", "other"}, {"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", yes}, {"OUTLIER_LOG_PATH", "/log"},
		{"ENVOY_SKIP_DEPRECATED_LOGS", yes}, {"UNPRIVILEGED_POD", yes}, {"DNS_PROXY_ADDR", "127.0.0.1:53"}, {"PILOT_SAN", []any{"a"}},
	} {
		e.add("metadata-"+of.name, web, key(of.name, of.value))
	}
	capture := e.add("metadata-dns", web, key("DNS_CAPTURE", yes))
	e.add("metadata-dns-auto-allocate", capture, key("DNS_AUTO_ALLOCATE", yes))
	files := e.add("metadata-files", web, key("file-credential", yes))
	for _, side := range []string{"TLS_CLIENT_", "TLS_SERVER_"} {
		chain, private, root := key(side+"CERT_CHAIN", "/tls/chain"), key(side+"KEY", "/tls/key"), key(side+"ROOT_CERT", "/tls/root")
		base := e.add("metadata-"+side+"FILES", files, chain, private, root)
		for _, file := range []string{"CERT_CHAIN", "KEY", "ROOT_CERT"} {
			e.add("metadata-"+side+file, base, key(side+file, "/tls/other"))
		}
	}
	self := func(pod *Pod) { pod.asks = []string{"local_cluster"} }
	itself := e.add("metadata-self", web, key("ENABLE_SELF_DISCOVERY", yes), self)
	e.add("metadata-self-hash", itself, relabelledTo("pod-template-hash", "other"))
	e.add("metadata-self-workload", itself, key("WORKLOAD_NAME", "other"))
	// A client of gRPC has no wildcard.
	grpc := e.add("metadata-grpc", web, key("GENERATOR", "grpc"), func(pod *Pod) {
		pod.names = map[string][]string{
			clusters:  {"outbound|80||db.prod.svc.cluster.local", "outbound|80||web.prod.svc.cluster.local"},
			listeners: {"db.prod.svc.cluster.local:80", "web.prod.svc.cluster.local:80", "xds.istio.io/grpc/lds/inbound/0.0.0.0:8080"},
		}
	})
	e.add("metadata-grpc-again", grpc, again)
	e.add("metadata-grpc-zone-2", grpc, at("n1"))
	// Without TLS istiod refuses a machine that wants to be registered. It has nothing then, here as there.
	e.add("metadata-auto-register", web, key("AUTO_REGISTER_GROUP", "machines"), func(pod *Pod) { pod.isRefused = true })
}

// nodes is the rest of a node: the id, the addresses, the cluster and the user agent.
func (e *Everything) nodes() {
	web := e.pods[0]
	for _, of := range []string{"router", "waypoint"} {
		e.add("id-"+of, web, kind(of))
		e.add("id-"+of+"-zone-2", web, kind(of), at("n1"))
	}
	e.add("id-waypoint-again", web, kind("waypoint"), again)
	e.add("id-domain", web, domain("prod.svc.other.example"))
	e.add("id-domain-of-other", web, domain("other.svc.cluster.local"))
	e.add("id-address", web, node(func(node *core.Node) {
		node.Id = "sidecar~10.9.9.9~id-address.prod~prod.svc.cluster.local"
	}))
	e.add("addresses-v6", web, addresses("fd00::1"))
	e.add("addresses-v6-again", web, addresses("fd00::2"))
	e.add("addresses-v4-v6", web, addresses("10.3.0.1", "fd00::3"))
	e.add("addresses-v4-v6-again", web, addresses("10.3.0.2", "fd00::4"))
	e.add("addresses-v6-v4", web, addresses("fd00::5", "10.3.0.3"))
	e.add("addresses-two", web, addresses("10.3.0.4", "10.3.0.5"))
	e.add("addresses-of-the-id", web, key("INSTANCE_IPS", nil))
	e.add("node-cluster", web, node(func(node *core.Node) { node.Cluster = "shop" }))
	e.add("node-agent", web, node(func(node *core.Node) { node.UserAgentName = "other" }))
	e.add("node-version", web, node(func(node *core.Node) {
		version := &core.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 35}}
		node.UserAgentVersionType = &core.Node_UserAgentBuildVersion{UserAgentBuildVersion: version}
	}))
	e.add("node-features", web, node(func(node *core.Node) { node.ClientFeatures = []string{"envoy.lb.does_not_support_overprovisioning"} }))
	e.add("node-locality", web, node(func(node *core.Node) { node.Locality = &core.Locality{Region: "r9"} }))
}

// routers are gateways: what they are about differs from what sidecars are about.
func (e *Everything) routers() {
	gateway := e.add("gateway", e.pods[0], workload("ingress", namespace, ""), kind("router"), label("istio", "ingress"))
	e.add("gateway-again", gateway, again)
	e.add("gateway-zone-2", gateway, at("n1"))
	e.add("gateway-egress", gateway, label("istio", "egress"))
	e.add("gateway-domain", gateway, domain("other.svc.cluster.local"))
	e.add("gateway-unprivileged", gateway, key("UNPRIVILEGED_POD", "true"))
	e.add("gateway-http10", gateway, key("HTTP10", "1"))
	for number, topology := range []map[string]any{{"numTrustedProxies": 2}, {"forwardClientCertDetails": "ALWAYS_FORWARD_ONLY"}} {
		e.add(fmt.Sprintf("gateway-topology-%d", number), gateway, key("PROXY_CONFIG", proxyConfig("gatewayTopology", topology)))
	}
}

// finer are the proxies that share a class with another one under the plain rules, and must not.
func (e *Everything) finer() {
	web := e.pods[0]
	tunnel := e.add("hbone-0", web, workload("web", namespace, ownAddress), key("ENABLE_HBONE", "true"))
	store := e.add("store-0", web, workload("store", namespace, ownAddress))
	own := e.add("own-0", web, workload("own", namespace, ownAddress))
	for number := 1; number < 3; number++ {
		for _, first := range []*Pod{tunnel, store, own} {
			e.add(fmt.Sprintf("%s%d", strings.TrimSuffix(first.name, "0"), number), first)
		}
	}
	e.add("store-on-another", store, at("n3"))
	agent := e.add("agent-0", web, workload("agent", "near", ownNode))
	e.add("agent-0-again", agent, again)
	for number := 1; number < 4; number++ {
		first := e.add(fmt.Sprintf("agent-%d", number), agent, at(fmt.Sprintf("n%d", number)))
		e.add(first.name+"-again", first, again)
	}
	e.add("agent-node-name", agent, key("NODE_NAME", "n3"))
	// A Pod of another network is reached by the gateway there, if it takes mutual TLS. Only proxies of one address family may see it:
	// istiod has one cache of endpoints for all families, and chooses gateways by the family.
	abroad, mutual := label("topology.istio.io/network", "network-2"), label("security.istio.io/tlsMode", "istio")
	e.add("far-0", web, workload("far", "near", ""), abroad, mutual)
	e.add("agent-network", agent, key("NETWORK", "network-2"))
	e.add("agent-network-view", agent, key("REQUESTED_NETWORK_VIEW", "network-1"))
}
