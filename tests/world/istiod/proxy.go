package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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

// node is the node that pilot-agent makes for a Pod: no locality, and the labels of the start.
func (p *Pod) nodeOfProxy() *core.Node {
	labels := map[string]any{}
	for key, value := range p.labels() {
		labels[key] = value
	}
	metadata := must(structpb.NewStruct(map[string]any{
		"NAME": p.name, "NAMESPACE": namespace, "INSTANCE_IPS": p.address, "LABELS": labels,
		"CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "NODE_NAME": p.node, "SERVICE_ACCOUNT": p.workload,
		"WORKLOAD_NAME": p.workload, "INTERCEPTION_MODE": "REDIRECT", "MESH_ID": "cluster.local",
	}))
	id := fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", p.address, p.name, namespace, namespace)
	return &core.Node{Id: id, Cluster: p.workload + "." + namespace, Metadata: metadata, UserAgentName: "envoy"}
}

// Proxy is a client that subscribes like Envoy: all clusters and listeners, and what they refer to.
type Proxy struct {
	pod    *Pod
	stop   context.CancelFunc
	lock   sync.Mutex
	last   time.Time
	has    map[string]map[string][]byte
	failed error
}

func connect(address string, pod *Pod) *Proxy {
	ctx, stop := context.WithCancel(context.Background())
	proxy := &Proxy{pod: pod, stop: stop, last: time.Now(), has: map[string]map[string][]byte{}}
	for _, kind := range []string{clusters, endpoints, listeners, routes} {
		proxy.has[kind] = map[string][]byte{}
	}
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	stream := must(discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx, grpc.WaitForReady(true)))
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

func (p *Proxy) run(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) error {
	for _, kind := range []string{clusters, listeners} {
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: p.pod.nodeOfProxy(), TypeUrl: kind, ResourceNamesSubscribe: []string{"*"}}); err != nil {
			return err
		}
	}
	wanted := map[string][]string{}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		p.lock.Lock()
		p.last = time.Now()
		for _, resource := range response.Resources {
			// On its way when the name was given up.
			if names, isNamed := wanted[response.TypeUrl]; isNamed && !slices.Contains(names, resource.Name) {
				continue
			}
			p.has[response.TypeUrl][resource.Name] = resource.Resource.GetValue()
		}
		for _, name := range response.RemovedResources {
			delete(p.has[response.TypeUrl], name)
		}
		next, kind := p.references(response.TypeUrl)
		p.lock.Unlock()
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}); err != nil {
			return err
		}
		if kind == "" || slices.Equal(next, wanted[kind]) {
			continue
		}
		request := &discovery.DeltaDiscoveryRequest{TypeUrl: kind}
		request.ResourceNamesSubscribe = without(next, wanted[kind])
		request.ResourceNamesUnsubscribe = without(wanted[kind], next)
		p.lock.Lock()
		for _, name := range request.ResourceNamesUnsubscribe {
			delete(p.has[kind], name)
		}
		p.lock.Unlock()
		wanted[kind] = next
		if err := stream.Send(request); err != nil {
			return err
		}
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

// differences are the resources that two proxies of one Pod have otherwise.
func differences(direct, relayed *Proxy) []string {
	direct.lock.Lock()
	defer direct.lock.Unlock()
	relayed.lock.Lock()
	defer relayed.lock.Unlock()
	var found []string
	for _, proxy := range []*Proxy{direct, relayed} {
		if proxy.failed != nil {
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
