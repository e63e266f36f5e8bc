package main

import (
	"fmt"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
)

// Case is a control plane as people build it, and the case of the shipped configuration that fits it.
type Case struct {
	name, what string
	// The title of the case in the file; empty: the rule that stands in the file.
	title string
	hash  func(*core.Node) string
	// The content of a node, if it is not that of its key alone.
	label func(*core.Node) string
	// The parts of the node that split the classes of the rule, if they are more than the key.
	class func(*core.Node) string
	// A rule that is too coarse. The comparison must find wrong proxies with it.
	coarse string
	// The cache has the flag `ads`.
	isADS bool
	// A LinearCache for each type.
	isLinear bool
	// The relay speaks state of the world with the control plane.
	isSotw bool
	// Each node has an id of its own.
	hasOwnIDs bool
	// The control plane has snapshots under the names of clusters, too.
	hasClusterKeys bool
	// Secrets are shared by the rule, too.
	sharesSecrets bool
	// The control plane wants to hear of proxies that reject something.
	tellsRejections bool
}

func byCluster(node *core.Node) string { return node.GetCluster() }

func constant(*core.Node) string { return "all" }

// whole has all parts of a node that a control plane behind the relay can read.
func whole(node *core.Node) string {
	version := node.GetUserAgentVersion()
	if build := node.GetUserAgentBuildVersion(); build != nil {
		version = fmt.Sprint("build ", build.GetVersion().GetMajorNumber(), build.GetVersion().GetMinorNumber(), build.GetVersion().GetPatch())
	}
	metadata := must(proto.MarshalOptions{Deterministic: true}.Marshal(node.GetMetadata()))
	return fmt.Sprintf("%q", []any{node.GetId(), node.GetCluster(), place(node, "sub_zone"), metadata, node.GetUserAgentName(), version})
}

// place is the locality down to a depth.
func place(node *core.Node, depth string) string {
	locality := node.GetLocality()
	if locality == nil {
		return "nowhere"
	}
	parts := []string{locality.Region, locality.Zone, locality.SubZone}
	if depth == "zone" {
		parts = parts[:2]
	}
	return strings.Join(parts, "/")
}

func role(node *core.Node) string {
	return node.GetMetadata().GetFields()["role"].GetStringValue()
}

func zoneAndCluster(node *core.Node) string {
	return node.GetLocality().GetZone() + "/" + node.GetCluster()
}

func cases() []Case {
	return []Case{
		{
			name: "any", what: "any NodeHash: a hash of the whole node, and the file as shipped",
			hash: whole, isADS: true,
			coarse: "- { split_by: { id: true }, upstream_node: member }",
		}, {
			name: "id", what: "IDHash, a snapshot for each id", title: "`cache.IDHash{}`, and each id has a snapshot of its own",
			hash: cache.IDHash{}.ID, isADS: true,
			coarse: "- { split_by: { cluster: true }, upstream_node: member }",
		}, {
			name: "id-alike", what: "IDHash, all ids of a cluster have equal snapshots", title: "`cache.IDHash{}`, and all ids of a cluster have equal snapshots",
			hash: cache.IDHash{}.ID, label: byCluster, class: byCluster, hasOwnIDs: true,
			coarse: "- { split_by: {}, upstream_node: member }",
		}, {
			name: "id-template", what: "IDHash, and a snapshot under the name of each cluster, too", title: "`cache.IDHash{}`, and the name of each cluster is a key, too",
			hash: cache.IDHash{}.ID, label: byCluster, class: byCluster, hasOwnIDs: true, hasClusterKeys: true, isADS: true,
			coarse: "- { split_by: {}, upstream_node: { template: { id: web } } }",
		}, {
			name: "cluster", what: "a hash of node.cluster", title: "a hash that returns node.cluster",
			hash: byCluster, isADS: true, tellsRejections: true, coarse: "- split_by: {}",
		}, {
			name: "cluster-secrets", what: "the same, and Secrets are shared", title: "node.cluster, and the Secrets",
			hash: byCluster, sharesSecrets: true, coarse: "- { split_by: {}, upstream_node: member }",
		}, {
			name: "cluster-sotw", what: "a hash of node.cluster, and the relay speaks state of the world", title: "a hash that returns node.cluster",
			hash: byCluster, isSotw: true, tellsRejections: true, coarse: "- split_by: {}",
		}, {
			name: "constant", what: "a constant", title: "a hash that returns a constant",
			hash: constant, isADS: true,
		}, {
			name: "role", what: "a hash of a key of the metadata", title: "a hash of a key of the metadata",
			hash: role, isADS: true, coarse: "- split_by: { cluster: true }",
		}, {
			name: "zone", what: "a hash of the zone and the cluster", title: "a hash of the zone and the cluster",
			hash: zoneAndCluster, class: func(node *core.Node) string { return place(node, "zone") + " " + node.GetCluster() },
			coarse: "- split_by: { cluster: true }",
		}, {
			name: "linear", what: "a LinearCache for each type", title: "a hash that returns a constant",
			hash: constant, isLinear: true,
		},
	}
}

func (c *Case) labelOf(node *core.Node) string {
	if c.label != nil {
		return c.label(node)
	}
	return c.hash(node)
}

// classOf has the features of the client, too: they split classes by every rule.
func (c *Case) classOf(node *core.Node) string {
	class := c.hash
	if c.class != nil {
		class = c.class
	}
	return fmt.Sprintf("%s %q", class(node), node.GetClientFeatures())
}

func (c *Case) nodes() []Named {
	if c.hasOwnIDs {
		return withOwnIDs(nodes())
	}
	return nodes()
}
