package main

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	extensionsapi "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	typeapi "istio.io/api/type/v1beta1"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/schema/gvk"
)

// Push is a change of configuration.
type Push struct {
	name string
	do   func()
}

// push makes a change and compares all proxies. A change of which istiod tells nobody proves nothing.
func (w *World) push(push Push) {
	heard := func() (answers int) {
		for _, proxy := range w.direct {
			proxy.lock.Lock()
			answers += proxy.answers
			proxy.lock.Unlock()
		}
		return answers
	}
	before := heard()
	push.do()
	w.compare("after " + push.name)
	if heard() == before {
		w.fault("istiod told nobody of %s", push.name)
	}
}

// route gives a share of the requests for one workload to another.
func route(weight int32) config.Config {
	to := func(host string, weight int32) *networking.HTTPRouteDestination {
		return &networking.HTTPRouteDestination{Destination: &networking.Destination{Host: host + ".prod.svc.cluster.local"}, Weight: weight}
	}
	return config.Config{
		Meta: config.Meta{GroupVersionKind: gvk.VirtualService, Name: "canary", Namespace: namespace},
		Spec: &networking.VirtualService{
			Hosts: []string{"web.prod.svc.cluster.local"},
			Http:  []*networking.HTTPRoute{{Route: []*networking.HTTPRouteDestination{to("web", 100-weight), to("api", weight)}}},
		},
	}
}

// put creates an object, or changes it.
func (c *Cluster) put(object config.Config) {
	store := c.istiod.Store()
	if former := store.Get(object.GroupVersionKind, object.Name, namespace); former != nil {
		object.ResourceVersion = former.ResourceVersion
		must(store.Update(object))
	} else {
		must(store.Create(object))
	}
}

// limit changes all clusters.
func (c *Cluster) limit(connections int32) {
	rule := *c.istiod.Store().Get(gvk.DestinationRule, "by-zone", namespace)
	spec := rule.Spec.(*networking.DestinationRule).DeepCopy()
	spec.TrafficPolicy.ConnectionPool = &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: connections}}
	rule.Spec = spec
	c.put(rule)
}

// shorten leaves some endpoints of a workload.
func (c *Cluster) shorten(workload string, count int) {
	slice := c.slice(workload)
	slice.Endpoints = slice.Endpoints[:count]
	must(c.client().Kube().DiscoveryV1().EndpointSlices(namespace).Update(context.Background(), slice, metav1.UpdateOptions{}))
}

// pushNumber is one of any number of different pushes: of a route, of endpoints, of all clusters.
func (c *Cluster) pushNumber(number int) {
	switch number % 3 {
	case 0:
		c.put(route(int32(1 + number%90)))
	case 1:
		c.shorten("db", 1+number%len(c.slice("db").Endpoints))
	default:
		c.limit(int32(100 + number))
	}
}

func (w *World) pushes() []Push {
	ctx, kube, cluster := context.Background(), w.cluster.client().Kube(), w.cluster
	return []Push{
		{"a route with weights", func() { cluster.put(route(10)) }},
		{"other weights", func() { cluster.put(route(50)) }},
		{"fewer endpoints", func() { cluster.shorten("db", len(cluster.slice("db").Endpoints)/2) }},
		{"all endpoints again", func() { cluster.shorten("db", len(cluster.slice("db").Endpoints)) }},
		{"a new Service", func() {
			must(kube.CoreV1().Services(namespace).Create(ctx, service("queue", "10.96.0.99"), metav1.CreateOptions{}))
		}},
		{"a Service less", func() { check(kube.CoreV1().Services(namespace).Delete(ctx, "queue", metav1.DeleteOptions{})) }},
		{"other connection limits", func() { cluster.limit(77) }},
		{"mutual TLS for one workload", func() {
			cluster.put(config.Config{
				Meta: config.Meta{GroupVersionKind: gvk.DestinationRule, Name: "cache", Namespace: namespace},
				Spec: &networking.DestinationRule{
					Host:          "cache.prod.svc.cluster.local",
					TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_ISTIO_MUTUAL}},
				},
			})
		}},
		{"another configuration of a Wasm filter", func() { cluster.put(filter("2")) }},
		{"a Sidecar for one workload", func() { cluster.put(sidecar()) }},
		{"the route gone", func() { check(cluster.istiod.Store().Delete(gvk.VirtualService, "canary", namespace, nil)) }},
	}
}

// filter is a Wasm filter for one workload.
func filter(share string) config.Config {
	return config.Config{
		Meta: config.Meta{GroupVersionKind: gvk.WasmPlugin, Name: "filter", Namespace: namespace},
		Spec: &extensionsapi.WasmPlugin{
			Selector:     &typeapi.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}},
			Url:          "http://wasm.example/filter.wasm",
			Sha256:       strings.Repeat("0a", 32),
			PluginConfig: must(structpb.NewStruct(map[string]any{"share": share})),
		},
	}
}

// sidecar narrows what the proxies of one workload see.
func sidecar() config.Config {
	return config.Config{
		Meta: config.Meta{GroupVersionKind: gvk.Sidecar, Name: "narrow", Namespace: namespace},
		Spec: &networking.Sidecar{
			WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": "cache"}},
			Egress:           []*networking.IstioEgressListener{{Hosts: []string{"./db.prod.svc.cluster.local"}}},
			OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{
				Mode: networking.OutboundTrafficPolicy_REGISTRY_ONLY,
			},
			InboundConnectionPool: &networking.ConnectionPoolSettings{
				Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 9},
			},
		},
	}
}
