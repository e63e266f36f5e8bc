package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	prefix    = "type.googleapis.com/envoy.config."
	clusters  = prefix + "cluster.v3.Cluster"
	endpoints = prefix + "endpoint.v3.ClusterLoadAssignment"
	listeners = prefix + "listener.v3.Listener"
	routes    = prefix + "route.v3.RouteConfiguration"
)

// nodeOfProxy is the node that pilot-agent makes for a Pod: no locality, and the labels of the start.
func (p *Pod) nodeOfProxy() *core.Node {
	labels := map[string]any{}
	for key, value := range p.labels() {
		labels[key] = value
	}
	metadata := must(structpb.NewStruct(map[string]any{
		"NAME": p.name, "NAMESPACE": p.namespace, "INSTANCE_IPS": strings.Join(p.ips(), ","), "LABELS": labels,
		"CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "NODE_NAME": p.node, "SERVICE_ACCOUNT": p.serviceAccount(),
		"WORKLOAD_NAME": p.workload, "INTERCEPTION_MODE": "REDIRECT", "MESH_ID": "cluster.local",
	}))
	kind, domain := cmp.Or(p.kind, "sidecar"), cmp.Or(p.domain, p.namespace+".svc.cluster.local")
	node := &core.Node{
		Id:      fmt.Sprintf("%s~%s~%s.%s~%s", kind, p.ips()[0], p.name, p.namespace, domain),
		Cluster: p.workload + "." + p.namespace, Metadata: metadata, UserAgentName: "envoy",
	}
	for _, change := range p.changes {
		change(node)
	}
	return node
}

// Proxy is a client that subscribes like Envoy: all clusters and listeners, or those that its Pod names, and what they refer to.
type Proxy struct {
	pod  *Pod
	stop context.CancelFunc
	// The proxy rejects clusters.
	rejects atomic.Bool
	lock    sync.Mutex
	last    time.Time
	has     map[string]map[string][]byte
	// The answers so far, the resources that they took away, and what the last one had.
	answers, removals int
	word              string
	failed            error
}

func connect(address string, pod *Pod, variant Variant) *Proxy {
	ctx, stop := context.WithCancel(context.Background())
	proxy := &Proxy{pod: pod, stop: stop, last: time.Now(), has: map[string]map[string][]byte{}}
	for _, kind := range []string{clusters, endpoints, listeners, routes} {
		proxy.has[kind] = map[string][]byte{}
	}
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	stream := must(openStream(ctx, connection, variant, pod.nodeOfProxy()))
	go func() {
		defer connection.Close()
		err := proxy.run(stream)
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		if ctx.Err() == nil {
			proxy.failed = err
		}
	}()
	return proxy
}

func (p *Proxy) run(stream Stream) error {
	for _, kind := range []string{clusters, listeners} {
		names := wildcard
		if p.pod.names != nil {
			names = p.pod.names[kind]
		}
		if err := stream.subscribe(kind, names); err != nil {
			return err
		}
	}
	wanted := map[string][]string{}
	for {
		answer, err := stream.receive()
		if err != nil {
			return err
		}
		next, kind := p.take(answer, wanted)
		judge := stream.acknowledge
		if answer.kind == clusters && p.rejects.Load() {
			judge = stream.reject
		}
		if err := judge(answer); err != nil {
			return err
		}
		if kind == "" || slices.Equal(next, wanted[kind]) {
			continue
		}
		p.forget(kind, without(wanted[kind], next))
		wanted[kind] = next
		if err := stream.subscribe(kind, next); err != nil {
			return err
		}
	}
}

// take puts an answer in force, and returns the names that the proxy now wants of another kind.
func (p *Proxy) take(answer *Answer, wanted map[string][]string) ([]string, string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.last = time.Now()
	p.answers++
	p.word = fmt.Sprintf("%s %v", path.Base(answer.kind), slices.Sorted(maps.Keys(answer.resources)))
	held := p.has[answer.kind]
	for name, body := range answer.resources {
		// On its way when the name was given up.
		if names, isNamed := wanted[answer.kind]; isNamed && !slices.Contains(names, name) {
			continue
		}
		held[name] = body
	}
	removed := answer.removed
	if answer.isWhole {
		removed = without(slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(answer.resources)))
	}
	for _, name := range removed {
		if _, isHeld := held[name]; isHeld {
			p.removals++
		}
		delete(held, name)
	}
	return p.references(answer.kind)
}

func (p *Proxy) forget(kind string, names []string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, name := range names {
		delete(p.has[kind], name)
	}
}

func without(names, others []string) []string {
	var left []string
	for _, name := range names {
		if !slices.Contains(others, name) {
			left = append(left, name)
		}
	}
	return left
}

// references are the names of another type that the resources of a type refer to.
func (p *Proxy) references(kind string) ([]string, string) {
	found := map[string]bool{}
	switch kind {
	case clusters:
		for name, body := range p.has[clusters] {
			var read cluster.Cluster
			check(unmarshal(body, &read))
			if read.GetType() == cluster.Cluster_EDS {
				if service := read.GetEdsClusterConfig().GetServiceName(); service != "" {
					name = service
				}
				found[name] = true
			}
		}
		for _, name := range p.pod.asks {
			found[name] = true
		}
		kind = endpoints
	case listeners:
		for _, body := range p.has[listeners] {
			var read listener.Listener
			check(unmarshal(body, &read))
			for _, chain := range append(read.FilterChains, read.DefaultFilterChain) {
				for _, filter := range chain.GetFilters() {
					var manager hcm.HttpConnectionManager
					config := filter.GetTypedConfig()
					if config.MessageIs(&manager) {
						check(config.UnmarshalTo(&manager))
						if name := manager.GetRds().GetRouteConfigName(); name != "" {
							found[name] = true
						}
					}
				}
			}
		}
		kind = routes
	default:
		return nil, ""
	}
	return slices.Sorted(maps.Keys(found)), kind
}

func (p *Proxy) quietSince() time.Time {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.last
}

// differences are the resources that two proxies of one Pod have otherwise. The stream of one that istiod refuses may end.
func differences(direct, relayed *Proxy) []string {
	direct.lock.Lock()
	defer direct.lock.Unlock()
	relayed.lock.Lock()
	defer relayed.lock.Unlock()
	var found []string
	for _, proxy := range []*Proxy{direct, relayed} {
		if proxy.failed != nil && !proxy.pod.isRefused {
			found = append(found, proxy.failed.Error())
		}
	}
	for kind, resources := range direct.has {
		others := relayed.has[kind]
		names := map[string]bool{}
		for _, of := range []map[string][]byte{resources, others} {
			for name := range of {
				names[name] = true
			}
		}
		for name := range names {
			one, inDirect := resources[name]
			other, inRelayed := others[name]
			switch {
			case !inRelayed:
				found = append(found, fmt.Sprintf("%s %s is missing", kind, name))
			case !inDirect:
				found = append(found, fmt.Sprintf("%s %s is too much", kind, name))
			case !bytes.Equal(one, other):
				found = append(found, fmt.Sprintf("%s %s differs", kind, name))
			}
		}
	}
	slices.Sort(found)
	return found
}
