package main

import (
	"fmt"
	"maps"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"sluice.example/tests/world/shared"
)

const (
	ztunnel        = "ztunnel"
	addressKind    = prefix + "istio.workload.Address"
	workloadKind   = prefix + "istio.workload.Workload"
	authorizations = prefix + "istio.security.Authorization"
)

// nodeOfZtunnel is the node that a ztunnel makes from the environment of its chart.
func (p *Pod) nodeOfZtunnel() *core.Node {
	metadata := must(structpb.NewStruct(map[string]any{
		"NAME": p.name, "NAMESPACE": p.namespace, "INSTANCE_IPS": p.ips()[0], "NODE_NAME": p.node, "CLUSTER_ID": "Kubernetes",
	}))
	return &core.Node{
		Id:       fmt.Sprintf("%s~%s~%s.%s~%s.svc.cluster.local", ztunnel, p.ips()[0], p.name, p.namespace, p.namespace),
		Metadata: metadata,
	}
}

// runZtunnel asks for all addresses and policies. On demand, it asks for no address at first, which it says by a subscription that it gives
// up in the same request.
func (p *Proxy) runZtunnel(stream shared.Stream) error {
	for _, kind := range []string{p.pod.addressKind, authorizations} {
		request := &discovery.DeltaDiscoveryRequest{TypeUrl: kind, Node: p.pod.nodeOfProxy()}
		if p.pod.isOnDemand && kind == p.pod.addressKind {
			request.ResourceNamesSubscribe, request.ResourceNamesUnsubscribe = wildcard, wildcard
		}
		p.lock.Lock()
		request.InitialResourceVersions = maps.Clone(p.known[kind])
		p.lock.Unlock()
		if err := p.stream.Send(request); err != nil {
			return err
		}
	}
	for {
		answer, err := stream.Receive()
		if err != nil {
			return err
		}
		p.take(answer, nil)
		if err := stream.Accept(answer, nil); err != nil {
			return err
		}
	}
}

// remember keeps the versions of an answer, for the time when the ztunnel comes back.
func (p *Proxy) remember(answer *shared.Update) {
	known := p.known[answer.Kind]
	if known == nil {
		known = map[string]string{}
		p.known[answer.Kind] = known
	}
	for _, name := range answer.Removed {
		delete(known, name)
	}
	for name, resource := range answer.Resources {
		known[name] = resource.Version
	}
}

// demand asks for a further name. The ztunnel tells it when it comes back, without a version if nothing has this very name.
func (p *Proxy) demand(name string) {
	p.lock.Lock()
	known := p.known[p.pod.addressKind]
	if known == nil {
		known = map[string]string{}
		p.known[p.pod.addressKind] = known
	}
	if _, isKnown := known[name]; !isKnown {
		known[name] = ""
	}
	p.lock.Unlock()
	check(p.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: p.pod.addressKind, ResourceNamesSubscribe: []string{name}}))
}

// release gives a name up for another one. No ztunnel does so today. To a request that names nothing new istiod answers by removing all
// that the ztunnel has.
func (p *Proxy) release(name, next string) {
	p.lock.Lock()
	delete(p.known[p.pod.addressKind], name)
	p.known[p.pod.addressKind][next] = ""
	p.lock.Unlock()
	check(p.stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: p.pod.addressKind, ResourceNamesSubscribe: []string{next}, ResourceNamesUnsubscribe: []string{name},
	}))
}

// comeBackAll has all proxies of a side leave and come back, with what they had.
func comeBackAll(address string, proxies map[string]*Proxy) map[string]*Proxy {
	back := map[string]*Proxy{}
	for name, former := range proxies {
		former.stop()
		former.ended()
		back[name] = open(address, former.pod, delta, former)
	}
	return back
}

// ended waits until the proxy takes nothing any more.
func (p *Proxy) ended() { <-p.over }

// frugal fails if a relayed proxy was sent what it had.
func (w *World) frugal(when string) {
	for name, proxy := range w.relayed {
		proxy.lock.Lock()
		if proxy.repeats > 0 {
			w.fault("%s: %s was sent %d resources that it had", when, name, proxy.repeats)
		}
		proxy.repeats = 0
		proxy.lock.Unlock()
	}
}

// ambient is the world of ztunnels that subscribe to everything, each with its twin.
func (w *World) ambient(o *Options) {
	w.compare("at rest")
	w.content()
	w.atMost(o.streams)
	for _, push := range w.ambientPushes() {
		w.push(push)
		w.frugal("after " + push.name)
	}
	w.atMost(o.streams)
	w.relayed, w.direct = comeBackAll(w.relay.Address, w.relayed), comeBackAll(w.address, w.direct)
	w.compare("after all ztunnels came back with what they had")
	w.frugal("all ztunnels came back")
	w.nothingLost()
	w.restartAmbient()
	for _, pod := range w.pods[:len(w.pods)/2] {
		w.relayed[pod.name].stop()
		delete(w.relayed, pod.name)
	}
	w.compare("after half of the ztunnels have left")
	w.cluster.deletePod(w.pods[0])
	w.cluster.relabel(w.cluster.pods[1], "v4")
	w.compare("after a Pod of theirs is gone, and another relabelled")
	w.frugal("in the end")
	w.atMost(o.streams)
}

// content fails if the ztunnels have little: what is equal must be something.
func (w *World) content() {
	proxy := w.direct[w.pods[0].name]
	proxy.lock.Lock()
	defer proxy.lock.Unlock()
	addresses, policies := len(proxy.has[proxy.pod.addressKind]), len(proxy.has[authorizations])
	fmt.Printf("  a ztunnel has %d addresses and %d policies\n", addresses, policies)
	if addresses < len(w.cluster.pods)+len(workloads) || policies < 4 {
		w.fault("istiod gives little")
	}
}

// nothingLost fails if a relayed ztunnel that came back was told a removal.
func (w *World) nothingLost() {
	for name, proxy := range w.relayed {
		proxy.lock.Lock()
		if proxy.removals > 0 {
			w.fault("%s came back and lost %d resources", name, proxy.removals)
		}
		proxy.lock.Unlock()
	}
}

// restartAmbient ends istiod and begins another one, first with equal objects and then with others. A ztunnel comes back meanwhile.
func (w *World) restartAmbient() {
	for _, isChanged := range []bool{false, true} {
		streams := w.relay.Streams()
		known := w.cluster.awayWith()
		last := w.pods[len(w.pods)-1]
		w.relayed[last.name].stop()
		w.relayed[last.name].ended()
		w.relayed[last.name] = open(w.relay.Address, last, delta, w.relayed[last.name])
		before := w.counts()
		delete(before, last.name)
		time.Sleep(3 * time.Second)
		w.silence(before, false, "istiod is away")
		what := "a restart of istiod"
		if isChanged {
			what += " with changes meanwhile"
			known.KubernetesObjects = changeAmbient(w.cluster, known.KubernetesObjects)
		}
		w.cluster.back(known)
		w.reconnected(streams)
		if !isChanged {
			w.silence(before, false, "istiod is back")
		}
		w.direct = comeBackAll(w.address, w.direct)
		w.compare("after " + what)
		if !last.isOnDemand {
			w.frugal("after " + what)
		}
	}
}
