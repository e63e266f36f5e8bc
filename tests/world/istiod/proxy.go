package main

import (
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
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"sluice.example/tests/world/shared"
)

const (
	prefix     = "type.googleapis.com/"
	clusters   = shared.Clusters
	endpoints  = prefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	listeners  = shared.Listeners
	routes     = prefix + "envoy.config.route.v3.RouteConfiguration"
	extensions = prefix + "envoy.config.core.v3.TypedExtensionConfig"
	secrets    = prefix + "envoy.extensions.transport_sockets.tls.v3.Secret"
	nameTables = shared.NameTables
)

// Variant is the form of the protocol that a proxy speaks.
type Variant string

const (
	delta Variant = "delta"
	sotw  Variant = "sotw"
)

var wildcard = []string{shared.Wildcard}

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
	if kind == ztunnel {
		node = p.nodeOfZtunnel()
	}
	for _, change := range p.changes {
		change(node)
	}
	return node
}

// Proxy is a client that subscribes like Envoy: all clusters and listeners, or those that its Pod names, and what they refer to; and the
// name table, as pilot-agent does for a sidecar. A ztunnel asks for other types.
type Proxy struct {
	pod  *Pod
	stop context.CancelFunc
	// A ztunnel's stream, for later requests.
	stream *shared.DeltaStream
	// The proxy rejects clusters.
	rejects atomic.Bool
	lock    sync.Mutex
	last    time.Time
	has     shared.Contents
	// What a ztunnel tells when it comes back: by kind, the versions of what it has, and nothing for a name that it waits for.
	known map[string]map[string]string
	// The answers so far and those with nothing in them, the resources that they took away, those that the proxy had already, and what the
	// last one had.
	answers, empty, removals, repeats int
	word                              string
	// Resources that were taken away since the last comparison.
	taken  map[string]map[string]bool
	failed error
	// The stream has ended.
	over chan struct{}
}

func connect(address string, pod *Pod, variant Variant) *Proxy {
	return open(address, pod, variant, nil)
}

// open connects a proxy. One that comes back has what the former one had, and says so.
func open(address string, pod *Pod, variant Variant, former *Proxy) *Proxy {
	ctx, stop := context.WithCancel(context.Background())
	proxy := &Proxy{
		pod: pod, stop: stop, last: time.Now(), has: shared.Contents{},
		known: map[string]map[string]string{}, taken: map[string]map[string]bool{}, over: make(chan struct{}),
	}
	if former != nil {
		former.lock.Lock()
		proxy.has, proxy.known = former.has, former.known
		former.lock.Unlock()
	}
	secure := cmp.Or(pod.credentials, insecure.NewCredentials())
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(secure)))
	stream := must(shared.Open(ctx, connection, pod.nodeOfProxy(), variant == delta))
	run := proxy.run
	if pod.kind == ztunnel {
		proxy.stream, run = stream.(*shared.DeltaStream), proxy.runZtunnel
	}
	go func() {
		defer close(proxy.over)
		defer connection.Close()
		err := run(stream)
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		if ctx.Err() == nil {
			proxy.failed = err
		}
	}()
	return proxy
}

func (p *Proxy) run(stream shared.Stream) error {
	// What a proxy asks for from the start on, and what resources refer to.
	first, wanted := map[string][]string{clusters: wildcard, listeners: wildcard}, map[string][]string{}
	if p.pod.names != nil {
		first = p.pod.names
	} else if p.pod.kind == "" {
		first[nameTables] = wildcard
	}
	for _, kind := range []string{clusters, listeners, nameTables} {
		if names, isAsked := first[kind]; isAsked {
			if err := stream.Subscribe(kind, names, nil); err != nil {
				return err
			}
		}
	}
	for {
		answer, err := stream.Receive()
		if err != nil {
			return err
		}
		wants := p.take(answer, wanted)
		names, isFirst := first[answer.Kind]
		if !isFirst {
			names = wanted[answer.Kind]
		}
		if answer.Kind == clusters && p.rejects.Load() {
			err = stream.Reject(answer, names, "bad port")
		} else {
			err = stream.Accept(answer, names)
		}
		if err != nil {
			return err
		}
		for kind, next := range wants {
			former := wanted[kind]
			if slices.Equal(next, former) {
				continue
			}
			p.forget(kind, shared.Without(former, next))
			wanted[kind] = next
			if err := stream.Subscribe(kind, next, former); err != nil {
				return err
			}
		}
	}
}

// take puts an answer in force, and returns the names that the proxy now wants of other kinds.
func (p *Proxy) take(answer *shared.Update, wanted map[string][]string) map[string][]string {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.last = time.Now()
	if len(answer.Resources)+len(answer.Removed) > 0 || answer.IsWhole {
		p.answers++
	} else {
		p.empty++
	}
	held := p.has[answer.Kind]
	if held == nil {
		held = map[string]shared.Resource{}
		p.has[answer.Kind] = held
	}
	p.word = describe(answer, held)
	for name, resource := range answer.Resources {
		// On its way when the name was given up.
		if names, isNamed := wanted[answer.Kind]; isNamed && !slices.Contains(names, name) {
			continue
		}
		if former, isHeld := held[name]; isHeld && former.Equals(resource) {
			p.repeats++
		}
		held[name] = resource
	}
	removed := answer.Removed
	if answer.IsWhole {
		removed = shared.Without(slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(answer.Resources)))
	}
	for _, name := range removed {
		if _, isHeld := held[name]; isHeld {
			p.removals++
			if p.taken[answer.Kind] == nil {
				p.taken[answer.Kind] = map[string]bool{}
			}
			p.taken[answer.Kind][name] = true
		}
		delete(held, name)
	}
	if p.pod.kind == ztunnel {
		p.remember(answer)
	}
	return p.references(answer.Kind)
}

// describe tells what an answer brings: new resources with +, changed ones with ~, equal ones with =, and removals with -.
func describe(answer *shared.Update, held map[string]shared.Resource) string {
	words := []string{}
	for name, resource := range answer.Resources {
		former, isHeld := held[name]
		switch {
		case !isHeld:
			words = append(words, "+"+name)
		case former.Equals(resource):
			words = append(words, "="+name)
		default:
			words = append(words, "~"+name)
		}
	}
	for _, name := range answer.Removed {
		words = append(words, "-"+name)
	}
	slices.Sort(words)
	return fmt.Sprintf("%s %v", path.Base(answer.Kind), words)
}

func (p *Proxy) forget(kind string, names []string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, name := range names {
		delete(p.has[kind], name)
	}
}

// references are the names of other kinds that the resources of a kind refer to.
func (p *Proxy) references(kind string) map[string][]string {
	switch kind {
	case clusters:
		return map[string][]string{endpoints: p.endpointsOfClusters()}
	case listeners:
		refers := map[string]map[string]bool{routes: {}, extensions: {}, secrets: {}}
		for _, resource := range p.has[listeners] {
			var read listener.Listener
			check(unmarshal(resource.Body, &read))
			refersTo(&read, refers)
		}
		found := map[string][]string{}
		for kind, names := range refers {
			found[kind] = slices.Sorted(maps.Keys(names))
		}
		return found
	}
	return nil
}

func (p *Proxy) endpointsOfClusters() []string {
	found := map[string]bool{}
	for name, resource := range p.has[clusters] {
		var read cluster.Cluster
		check(unmarshal(resource.Body, &read))
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
	return slices.Sorted(maps.Keys(found))
}

// refersTo adds the routes, extensions and secrets of a listener. That of a gRPC client has one manager, and no filters.
func refersTo(read *listener.Listener, found map[string]map[string]bool) {
	configs := []*anypb.Any{read.GetApiListener().GetApiListener()}
	for _, chain := range append(read.FilterChains, read.DefaultFilterChain) {
		for _, filter := range chain.GetFilters() {
			configs = append(configs, filter.GetTypedConfig())
			if filter.GetConfigDiscovery() != nil {
				found[extensions][filter.Name] = true
			}
		}
		secretsOf(chain.GetTransportSocket(), found[secrets])
	}
	for _, config := range configs {
		var manager hcm.HttpConnectionManager
		if !config.MessageIs(&manager) {
			continue
		}
		check(config.UnmarshalTo(&manager))
		if name := manager.GetRds().GetRouteConfigName(); name != "" {
			found[routes][name] = true
		}
		for _, filter := range manager.HttpFilters {
			if filter.GetConfigDiscovery() != nil {
				found[extensions][filter.Name] = true
			}
		}
	}
}

// secretsOf adds the Secrets that a proxy asks of istiod. It has others of pilot-agent.
func secretsOf(socket *core.TransportSocket, found map[string]bool) {
	var read tls.DownstreamTlsContext
	config := socket.GetTypedConfig()
	if !config.MessageIs(&read) {
		return
	}
	check(config.UnmarshalTo(&read))
	common := read.GetCommonTlsContext()
	asked := append([]*tls.SdsSecretConfig{
		common.GetValidationContextSdsSecretConfig(),
		common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig(),
	}, common.GetTlsCertificateSdsSecretConfigs()...)
	for _, secret := range asked {
		if secret.GetSdsConfig().GetAds() != nil {
			found[secret.Name] = true
		}
	}
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
	return append(found, shared.Compare(direct.has, relayed.has)...)
}
