package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"sluice.example/tests/world/shared"
)

// Proxy is a client that subscribes like Envoy: all clusters and listeners, and the endpoints, routes and filters that they refer to.
type Proxy struct {
	node *core.Node
	stop context.CancelFunc
	// Types to ask for by name, besides those that resources refer to.
	asks chan ask

	lock sync.Mutex
	// The words with which the proxy rejects clusters, or nothing.
	rejects string
	last    time.Time
	failed  error
	// Responses, and resources that a response took away.
	messages, removals int
	has                map[string]map[string]held
	// The names of each type, sorted.
	wanted map[string][]string
}

type ask struct {
	kind  string
	names []string
}

// held is a resource with its references to others.
type held struct {
	shared.Resource
	to []reference
}

type reference struct{ kind, name string }

// newProxy connects. `asks` are subscriptions by name.
func newProxy(address string, node *core.Node, isDelta bool, asks ...ask) *Proxy {
	ctx, stop := context.WithCancel(context.Background())
	proxy := &Proxy{
		node: node, stop: stop, asks: make(chan ask, 8),
		last: time.Now(), has: map[string]map[string]held{}, wanted: map[string][]string{},
	}
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	ads := must(shared.Open(ctx, connection, proto.Clone(node).(*core.Node), isDelta))
	for _, kind := range []string{clusters, listeners} {
		proxy.asks <- ask{kind, []string{shared.Wildcard}}
	}
	for _, one := range asks {
		proxy.asks <- one
	}
	go func() {
		defer connection.Close()
		err := proxy.run(ctx, ads)
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		if ctx.Err() == nil {
			proxy.failed = err
		}
	}()
	return proxy
}

func (p *Proxy) run(ctx context.Context, ads shared.Stream) error {
	updates, failed := make(chan *shared.Update), make(chan error, 1)
	go func() {
		for {
			received, err := ads.Receive()
			if err != nil {
				failed <- err
				return
			}
			select {
			case updates <- received:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		var err error
		select {
		case one := <-p.asks:
			err = p.subscribe(ads, one.kind, one.names)
		case received := <-updates:
			err = p.take(ads, received)
		case err = <-failed:
		}
		if err != nil {
			return err
		}
	}
}

func (p *Proxy) subscribe(ads shared.Stream, kind string, names []string) error {
	p.lock.Lock()
	former := p.wanted[kind]
	p.wanted[kind] = names
	for _, name := range shared.Without(former, names) {
		delete(p.has[kind], name)
	}
	p.lock.Unlock()
	return ads.Subscribe(kind, names, former)
}

func (p *Proxy) take(ads shared.Stream, received *shared.Update) error {
	p.lock.Lock()
	p.last = time.Now()
	p.messages++
	p.store(received)
	next := map[string][]string{}
	if received.Kind == clusters || received.Kind == listeners {
		next = p.references(received.Kind)
	}
	names, rejects := p.wanted[received.Kind], p.rejects
	p.lock.Unlock()
	if err := answer(ads, received, names, rejects); err != nil {
		return err
	}
	for _, kind := range []string{endpoints, extensions, routes} {
		if names, isReferred := next[kind]; isReferred && !slices.Equal(names, p.wanted[kind]) {
			if err := p.subscribe(ads, kind, names); err != nil {
				return err
			}
		}
	}
	return nil
}

func answer(ads shared.Stream, received *shared.Update, names []string, rejects string) error {
	if rejects != "" && received.Kind == clusters {
		return ads.Reject(received, names, rejects)
	}
	return ads.Accept(received, names)
}

func (p *Proxy) store(received *shared.Update) {
	has := p.has[received.Kind]
	if has == nil {
		has = map[string]held{}
		p.has[received.Kind] = has
	}
	wanted := p.wanted[received.Kind]
	for name, resource := range received.Resources {
		// A name that was given up may be on its way.
		_, isWanted := slices.BinarySearch(wanted, name)
		if !isWanted && !slices.Equal(wanted, []string{shared.Wildcard}) {
			continue
		}
		if former, isThere := has[name]; !isThere || !former.Equals(resource) {
			has[name] = held{resource, references(received.Kind, resource.Body)}
		}
	}
	gone := received.Removed
	if received.IsWhole {
		for name := range has {
			if _, stays := received.Resources[name]; !stays {
				gone = append(gone, name)
			}
		}
	}
	for _, name := range gone {
		if _, isThere := has[name]; isThere {
			p.removals++
			delete(has, name)
		}
	}
}

// references are the names of each type to which the resources of a type refer.
func (p *Proxy) references(kind string) map[string][]string {
	found := map[reference]bool{}
	for _, one := range p.has[kind] {
		for _, to := range one.to {
			found[to] = true
		}
	}
	next := map[string][]string{endpoints: nil}
	if kind == listeners {
		next = map[string][]string{extensions: nil, routes: nil}
	}
	for to := range found {
		next[to.kind] = append(next[to.kind], to.name)
	}
	for _, names := range next {
		slices.Sort(names)
	}
	return next
}

func references(kind string, body []byte) []reference {
	switch kind {
	case clusters:
		return referencesOfCluster(body)
	case listeners:
		return referencesOfListener(body)
	}
	return nil
}

func referencesOfCluster(body []byte) []reference {
	var read cluster.Cluster
	check(proto.Unmarshal(body, &read))
	if read.GetType() != cluster.Cluster_EDS {
		return nil
	}
	if service := read.GetEdsClusterConfig().GetServiceName(); service != "" {
		return []reference{{endpoints, service}}
	}
	return []reference{{endpoints, read.Name}}
}

func referencesOfListener(body []byte) []reference {
	var read listener.Listener
	check(proto.Unmarshal(body, &read))
	var found []reference
	for _, chain := range append(read.FilterChains, read.DefaultFilterChain) {
		for _, one := range chain.GetFilters() {
			var manager hcm.HttpConnectionManager
			if config := one.GetTypedConfig(); config.MessageIs(&manager) {
				check(config.UnmarshalTo(&manager))
			}
			if name := manager.GetRds().GetRouteConfigName(); name != "" {
				found = append(found, reference{routes, name})
			}
			for _, http := range manager.GetHttpFilters() {
				if http.GetConfigDiscovery() != nil {
					found = append(found, reference{extensions, http.Name})
				}
			}
		}
	}
	return found
}

// heard is the time of the last response, and the number of responses and of removals so far.
func (p *Proxy) heard() (time.Time, int, int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.last, p.messages, p.removals
}

// bodies are the resources by type, or the error that ended the stream.
func (p *Proxy) bodies() (shared.Contents, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	all := shared.Contents{}
	for kind, resources := range p.has {
		all[kind] = map[string]shared.Resource{}
		for name, one := range resources {
			all[kind][name] = one.Resource
		}
	}
	return all, p.failed
}

// hasAsked tells whether the proxy asks for resources of a type.
func (p *Proxy) hasAsked(kind string) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.wanted[kind] != nil
}

// differences are the resources that two proxies with one node have otherwise.
func differences(direct, relayed *Proxy) []string {
	one, failedDirect := direct.bodies()
	other, failedRelayed := relayed.bodies()
	found := shared.Compare(one, other)
	for side, err := range map[string]error{"direct": failedDirect, "relayed": failedRelayed} {
		if err != nil {
			found = append(found, fmt.Sprintf("%s: %v", side, err))
		}
	}
	return found
}
