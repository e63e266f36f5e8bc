package main

import (
	"fmt"

	xds "github.com/cncf/xds/go/xds/core/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Named is a node, and how it differs from the first one of its gateway.
type Named struct {
	name string
	node *core.Node
}

// newNode is a node as Envoy Gateway's Envoys state it: the Pod's name, the gateway for the cluster, and the zone.
func newNode(gateway string, number int) *core.Node {
	return &core.Node{
		Id:                   fmt.Sprintf("envoy-default-%s-7d9c5-%d", gateway, number),
		Cluster:              "default/" + gateway,
		Locality:             &core.Locality{Zone: "z1"},
		UserAgentName:        "envoy",
		UserAgentVersionType: build(38, ""),
		Extensions:           []*core.Extension{{Name: "envoy.filters.http.router", Category: "envoy.filters.http"}},
		ClientFeatures:       []string{"envoy.lb.does_not_support_overprovisioning", "envoy.lrs.supports_send_all_clusters"},
	}
}

func build(minor uint32, revision string) *core.Node_UserAgentBuildVersion {
	version := &core.BuildVersion{Version: &kind.SemanticVersion{MajorNumber: 1, MinorNumber: minor}}
	if revision != "" {
		version.Metadata = must(structpb.NewStruct(map[string]any{"revision.sha": revision}))
	}
	return &core.Node_UserAgentBuildVersion{UserAgentBuildVersion: version}
}

// nodes are nodes of two gateways that differ from their first one in one property each besides the id, nodes of a gateway that comes
// later, and one of a gateway that never comes. Each has an id of its own: Envoy Gateway keeps what it sends by the id, so it takes
// two clusters with one id for the first one's.
func nodes() []Named {
	var all []Named
	for _, gateway := range []string{"shop", "api"} {
		vary := func(name string, change func(*core.Node)) {
			node := newNode(gateway, len(all))
			change(node)
			all = append(all, Named{gateway + ", " + name, node})
		}
		vary("the first", func(*core.Node) {})
		vary("another id", func(*core.Node) {})
		vary("an id without the gateway", func(n *core.Node) { n.Id = fmt.Sprintf("pod-%s-%d", gateway, len(all)) })
		vary("an odd id", func(n *core.Node) { n.Id = fmt.Sprintf("~%s/%d *$ü", gateway, len(all)) })
		vary("a region", func(n *core.Node) { n.Locality.Region = "r1" })
		vary("another zone", func(n *core.Node) { n.Locality.Zone = "z2" })
		vary("no zone", func(n *core.Node) { n.Locality.Zone = "" })
		vary("a sub-zone", func(n *core.Node) { n.Locality.SubZone = "s1" })
		vary("no locality", func(n *core.Node) { n.Locality = nil })
		vary("metadata", func(n *core.Node) { n.Metadata = must(structpb.NewStruct(map[string]any{"team": "red"})) })
		vary("other metadata", func(n *core.Node) { n.Metadata = must(structpb.NewStruct(map[string]any{"team": "blue"})) })
		vary("much metadata", func(n *core.Node) {
			n.Metadata = must(structpb.NewStruct(map[string]any{"role": "edge", "labels": map[string]any{"a": "b"}, "ports": []any{80, 443}}))
		})
		vary("user agent", func(n *core.Node) { n.UserAgentName = "envoy-contrib" })
		vary("version 1.39", func(n *core.Node) { n.UserAgentVersionType = build(39, "") })
		vary("version as text", func(n *core.Node) { n.UserAgentVersionType = &core.Node_UserAgentVersion{UserAgentVersion: "1.38.0"} })
		vary("revision of the build", func(n *core.Node) { n.UserAgentVersionType = build(38, "abc") })
		vary("no version", func(n *core.Node) { n.UserAgentVersionType = nil })
		vary("no extensions", func(n *core.Node) { n.Extensions = nil })
		vary("dynamic parameters", func(n *core.Node) {
			n.DynamicParameters = map[string]*xds.ContextParams{clusters: {Params: map[string]string{"a": "b"}}}
		})
	}
	all = append(all, Named{"api, other features", newNode("api", len(all))})
	all[len(all)-1].node.ClientFeatures = []string{"xds.config.resource-in-sotw"}
	for _, gateway := range []string{"late", "late", "never"} {
		all = append(all, Named{gateway, newNode(gateway, len(all))})
	}
	return all
}

// members are nodes of one gateway, equal but for the id.
func members(gateway string, count int) []Named {
	var all []Named
	for number := range count {
		node := newNode(gateway, number)
		all = append(all, Named{node.Id, node})
	}
	return all
}

// classOf has what splits classes: the cluster by the rule, and the client's features and dynamic parameters by every rule.
func classOf(node *core.Node) string {
	return fmt.Sprintf("%s %q %d", node.GetCluster(), node.GetClientFeatures(), len(node.GetDynamicParameters()))
}
