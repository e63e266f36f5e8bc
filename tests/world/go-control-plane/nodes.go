package main

import (
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Named is a node, and how it differs from the first one.
type Named struct {
	name string
	node *core.Node
}

func newNode() *core.Node {
	return &core.Node{
		Id:       "web-0",
		Cluster:  "web",
		Locality: &core.Locality{Region: "r1", Zone: "z1", SubZone: "s1"},
		Metadata: must(structpb.NewStruct(map[string]any{
			"role": "web", "team": "red", "version": "v1", "weight": 10, "ready": true,
			"labels": map[string]any{"tier": "front", "track": "stable"}, "ports": []any{80, 443},
		})),
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

// nodes are nodes that differ from the first one in one property each, and an equal one.
func nodes() []Named {
	all := []Named{{"the first", newNode()}, {"its twin", newNode()}}
	vary := func(name string, change func(*core.Node)) {
		node := newNode()
		change(node)
		all = append(all, Named{name, node})
	}
	metadata := func(key string, values ...any) {
		for _, value := range values {
			vary(fmt.Sprintf("metadata %s %v", key, value), func(n *core.Node) {
				n.Metadata.Fields[key] = must(structpb.NewValue(value))
			})
		}
		vary("no metadata "+key, func(n *core.Node) { delete(n.Metadata.Fields, key) })
	}
	for number := range 8 {
		id := fmt.Sprintf("web-%d", number+1)
		vary("id "+id, func(n *core.Node) { n.Id = id })
	}
	for _, name := range []string{"api", "db", "cache", "edge", ""} {
		vary("cluster "+name, func(n *core.Node) { n.Cluster = name })
	}
	for _, name := range []string{"2", "3"} {
		vary("region r"+name, func(n *core.Node) { n.Locality.Region = "r" + name })
		vary("zone z"+name, func(n *core.Node) { n.Locality.Zone = "z" + name })
		vary("sub-zone s"+name, func(n *core.Node) { n.Locality.SubZone = "s" + name })
	}
	vary("no locality", func(n *core.Node) { n.Locality = nil })
	metadata("role", "api", "db", "cache")
	metadata("team", "blue", "green")
	metadata("version", "v2", "v3")
	metadata("weight", 20, "10")
	metadata("ready", false)
	metadata("ports", []any{80}, []any{443, 80})
	metadata("labels", map[string]any{"tier": "back", "track": "stable"}, map[string]any{"tier": "front", "track": "canary"})
	metadata("further", "text")
	vary("no metadata", func(n *core.Node) { n.Metadata = nil })
	vary("user agent gRPC Go", func(n *core.Node) { n.UserAgentName = "gRPC Go" })
	vary("version 1.39", func(n *core.Node) { n.UserAgentVersionType = build(39, "") })
	vary("version as text", func(n *core.Node) { n.UserAgentVersionType = &core.Node_UserAgentVersion{UserAgentVersion: "1.38.0"} })
	vary("revision of the build", func(n *core.Node) { n.UserAgentVersionType = build(38, "abc") })
	vary("no extensions", func(n *core.Node) { n.Extensions = nil })
	vary("other features", func(n *core.Node) { n.ClientFeatures = []string{"xds.config.resource-in-sotw"} })
	return all
}

// withOwnIDs gives each node an id of its own.
func withOwnIDs(all []Named) []Named {
	for number, named := range all {
		named.node.Id = fmt.Sprintf("%s-%d", named.node.Cluster, number)
	}
	return all
}

// members are nodes of one cluster, each with an id of its own.
func members(count int) []Named {
	var all []Named
	for number := range count {
		node := newNode()
		node.Id = fmt.Sprintf("web-%d", number)
		all = append(all, Named{node.Id, node})
	}
	return all
}
