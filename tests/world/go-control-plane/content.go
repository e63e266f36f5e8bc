package main

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	lua "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice.example/tests/world/shared"
)

const (
	clusters   = resource.ClusterType
	endpoints  = resource.EndpointType
	listeners  = resource.ListenerType
	routes     = resource.RouteType
	runtimes   = resource.RuntimeType
	extensions = resource.ExtensionConfigType
	secrets    = resource.SecretType

	layer  = "layer"
	filter = "filter"
	cert   = "cert"
)

// kinds are the types of the world, in the order of make before break.
var kinds = []string{secrets, clusters, endpoints, extensions, listeners, routes, runtimes}

// Content is the configuration under one key of the hash: resources by type and name. A change puts another resource in place of the
// former one, because snapshots keep the former one.
type Content map[string]map[string]types.Resource

// newContent is a content whose resources all differ from those of another label.
func newContent(label string, count int) Content {
	content := Content{}
	for _, kind := range kinds {
		content[kind] = map[string]types.Resource{}
	}
	for number := range count {
		content.putCluster(fmt.Sprintf("c-%d", number), label, 1+number%4)
	}
	content.put(&cluster.Cluster{
		Name:                 "static",
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
		LoadAssignment:       assignment("static", label, 1),
	})
	content.putListener("main", label)
	content.putRoute("main", label, "c-0")
	content.putExtras(label)
	return content
}

func (c Content) put(one types.Resource) {
	name := cache.GetResourceName(one)
	c[resource.APITypePrefix+string(proto.MessageName(one))][name] = one
}

func (c Content) drop(kind, name string) {
	delete(c[kind], name)
}

// putCluster adds a cluster with its endpoints.
func (c Content) putCluster(name, label string, count int) {
	ads := &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
	c.put(&cluster.Cluster{
		Name:                 name,
		AltStatName:          label,
		ConnectTimeout:       durationpb.New(time.Second),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads},
	})
	c.put(assignment(name, label, count))
}

// assignment has addresses that depend on the label.
func assignment(name, label string, count int) *endpoint.ClusterLoadAssignment {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(label + "/" + name))
	number := sum.Sum32()
	place := &endpoint.LocalityLbEndpoints{
		Locality:            &core.Locality{Region: "r1", Zone: "z1"},
		LoadBalancingWeight: wrapperspb.UInt32(1 + number%97),
	}
	for host := range count {
		address := &core.SocketAddress{
			Address:       fmt.Sprintf("10.%d.%d.%d", number>>24, number>>16&255, host+1),
			PortSpecifier: &core.SocketAddress_PortValue{PortValue: 1024 + number&0xfff},
		}
		place.LbEndpoints = append(place.LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
			Endpoint: &endpoint.Endpoint{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: address}}},
		}})
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{place}}
}

// putListener adds a listener that takes its routes by its own name, and a filter by reference.
func (c Content) putListener(name, label string) {
	ads := &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
	discovered := &core.ExtensionConfigSource{ConfigSource: ads, TypeUrls: []string{resource.APITypePrefix + string(proto.MessageName(&lua.Lua{}))}}
	manager := must(anypb.New(&hcm.HttpConnectionManager{
		StatPrefix:     label,
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: ads, RouteConfigName: name}},
		HttpFilters: []*hcm.HttpFilter{
			{Name: filter, ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: discovered}},
			{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: must(anypb.New(&router.Router{}))}},
		},
	}))
	address := &core.SocketAddress{Address: "0.0.0.0", PortSpecifier: &core.SocketAddress_PortValue{PortValue: 10000 + uint32(len(name))}}
	c.put(&listener.Listener{
		Name:    name,
		Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: address}},
		FilterChains: []*listener.FilterChain{{Filters: []*listener.Filter{{
			Name: "http", ConfigType: &listener.Filter_TypedConfig{TypedConfig: manager},
		}}}},
	})
}

func (c Content) putRoute(name, label, to string) {
	action := &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: to}}
	c.put(&route.RouteConfiguration{
		Name: name,
		VirtualHosts: []*route.VirtualHost{{
			Name:    label,
			Domains: []string{"*"},
			Routes: []*route.Route{{
				Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
				Action: &route.Route_Route{Route: action},
			}},
		}},
	})
}

// putExtras adds a runtime layer, a filter and a Secret, all with the text.
func (c Content) putExtras(text string) {
	c.put(&runtime.Runtime{Name: layer, Layer: must(structpb.NewStruct(map[string]any{"text": text}))})
	source := &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: "-- " + text}}
	c.put(&core.TypedExtensionConfig{Name: filter, TypedConfig: must(anypb.New(&lua.Lua{DefaultSourceCode: source}))})
	c.putSecret(text)
}

func (c Content) putSecret(text string) {
	source := &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: text}}
	c.put(&tls.Secret{Name: cert, Type: &tls.Secret_GenericSecret{GenericSecret: &tls.GenericSecret{Secret: source}}})
}

// setTimeout changes clusters, and not their endpoints.
func (c Content) setTimeout(names []string, timeout time.Duration) {
	for _, name := range names {
		changed := proto.Clone(c[clusters][name]).(*cluster.Cluster)
		changed.ConnectTimeout = durationpb.New(timeout)
		c.put(changed)
	}
}

// copyAll replaces all resources by equal ones.
func (c Content) copyAll() {
	for _, resources := range c {
		for name, one := range resources {
			resources[name] = proto.Clone(one)
		}
	}
}

func (c Content) snapshot(version string) *cache.Snapshot {
	lists := map[resource.Type][]types.Resource{}
	for kind, resources := range c {
		for _, name := range slices.Sorted(maps.Keys(resources)) {
			lists[kind] = append(lists[kind], resources[name])
		}
	}
	snapshot := must(cache.NewSnapshot(version, lists))
	check(snapshot.Consistent())
	return snapshot
}

func (c Content) marshal() shared.Contents {
	truth := shared.Contents{}
	for kind, resources := range c {
		truth[kind] = map[string]shared.Resource{}
		for name, one := range resources {
			truth[kind][name] = shared.Resource{Body: must(cache.MarshalResource(one))}
		}
	}
	return truth
}

// Push is a change of a content.
type Push struct {
	name   string
	change func(content Content, label string)
}

func pushes() []Push {
	return []Push{
		{"an added cluster", func(c Content, label string) { c.putCluster("added", label, 2) }},
		{"a changed cluster", func(c Content, _ string) { c.setTimeout([]string{"c-0"}, 3*time.Second) }},
		{"other endpoints", func(c Content, label string) { c.put(assignment("c-1", label, 5)) }},
		{"a route to the added cluster", func(c Content, label string) { c.putRoute("main", label, "added") }},
		{"a changed listener", func(c Content, label string) { c.putListener("main", label+"-changed") }},
		{"an added listener with its routes", func(c Content, label string) {
			c.putListener("second", label)
			c.putRoute("second", label, "c-1")
		}},
		{"another runtime layer and filter", func(c Content, label string) { c.putExtras(label + "-changed") }},
		{"a listener less", func(c Content, _ string) {
			c.drop(listeners, "second")
			c.drop(routes, "second")
		}},
		{"the route back and a cluster less", func(c Content, label string) {
			c.putRoute("main", label, "c-0")
			c.drop(clusters, "added")
			c.drop(endpoints, "added")
		}},
	}
}

// pushNumber is one of any number of different pushes: of a route, of endpoints, of all clusters.
func pushNumber(number int) func(Content, string) {
	return func(c Content, label string) {
		switch number % 3 {
		case 0:
			c.putRoute("main", label, fmt.Sprintf("c-%d", number%2))
		case 1:
			c.put(assignment("c-1", label, 1+number%20))
		default:
			all := slices.DeleteFunc(slices.Sorted(maps.Keys(c[clusters])), func(name string) bool { return name == "static" })
			c.setTimeout(all, time.Duration(number)*time.Second)
		}
	}
}
