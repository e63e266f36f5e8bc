package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/gvk"
)

// objects are what Kubernetes has by now.
func (c *Cluster) objects() []runtime.Object {
	var objects []runtime.Object
	ctx, all, kube := context.Background(), metav1.ListOptions{}, c.client().Kube()
	for _, item := range must(kube.CoreV1().Namespaces().List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(kube.CoreV1().Nodes().List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(kube.CoreV1().Pods("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(kube.CoreV1().Services("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(kube.DiscoveryV1().EndpointSlices("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(kube.CoreV1().Secrets("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	return append(objects, c.ambientKinds()...)
}

// configs are the objects of Istio.
func (c *Cluster) configs() []config.Config {
	var configs []config.Config
	for _, schema := range collections.PilotGatewayAPI().All() {
		for _, object := range c.istiod.Store().List(schema.GroupVersionKind(), "") {
			configs = append(configs, object.DeepCopy())
		}
	}
	return configs
}

// awayWith ends istiod with all of its streams, and returns what it knew.
func (c *Cluster) awayWith() *xds.FakeOptions {
	options := &xds.FakeOptions{KubernetesObjects: c.objects(), Configs: c.configs()}
	c.failer.end()
	return options
}

// back begins another istiod at the address of the former one: it has no state but that of the objects.
func (c *Cluster) back(options *xds.FakeOptions) {
	c.start(*options)
	c.followKubernetes()
}

// silence fails if a relayed proxy of those in `before` heard anything since these counts, or more than anything else if `isChanged`: a
// change may come, and nothing may go.
func (w *World) silence(before map[string][2]int, isChanged bool, when string) {
	answered, removed, ended, empty, words := 0, 0, 0, 0, []string{}
	for name, proxy := range w.relayed {
		proxy.lock.Lock()
		counts, isCounted := before[name]
		if isCounted && proxy.answers != counts[0] {
			answered++
			words = append(words, name+": "+proxy.word)
		}
		if isCounted && proxy.removals != counts[1] {
			removed++
		}
		if isCounted && proxy.empty > 0 {
			empty++
		}
		if proxy.failed != nil && !proxy.pod.isRefused {
			ended++
		}
		proxy.lock.Unlock()
	}
	if removed+ended > 0 || answered > 0 && !isChanged {
		w.fault("%s: %d relayed proxies had an answer, %d lost a resource, %d lost their stream", when, answered, removed, ended)
		fmt.Printf("  the last answers: %s\n", strings.Join(words[:min(3, len(words))], "; "))
	}
	if empty > 0 {
		fmt.Printf("  %s: %d relayed proxies had an answer with nothing in it\n", when, empty)
	}
	if isChanged && answered == 0 {
		w.fault("%s: no relayed proxy has heard of the change", when)
	}
}

func (w *World) counts() map[string][2]int {
	counts := map[string][2]int{}
	for name, proxy := range w.relayed {
		proxy.lock.Lock()
		counts[name] = [2]int{proxy.answers, proxy.removals}
		proxy.empty = 0
		proxy.lock.Unlock()
	}
	return counts
}

// restart ends istiod and begins another one, first with equal configuration and then with a changed one. The relayed proxies hear
// nothing of the first, and of the second what has changed. One comes back meanwhile and is served from the relay's cache.
func (w *World) restart() {
	streams := w.relay.Streams()
	for _, pod := range w.pods {
		if pod.isRefused {
			streams--
		}
	}
	known := w.cluster.awayWith()
	endAll(w.direct)
	w.comeBack(w.pods[len(w.pods)-1])
	before := w.counts()
	time.Sleep(3 * time.Second)
	w.silence(before, false, "istiod is away")
	w.cluster.back(known)
	w.reconnected(streams)
	w.silence(before, false, "istiod is back")
	w.direct = connectAll(w.address, w.pods, w.variant)
	w.compare("after a restart of istiod")

	known = w.cluster.awayWith()
	endAll(w.direct)
	before = w.counts()
	change(known)
	w.cluster.back(known)
	w.reconnected(streams)
	w.silence(before, true, "istiod is back with a change")
	w.direct = connectAll(w.address, w.pods, w.variant)
	w.compare("after a restart of istiod with a change meanwhile")
}

// comeBack has a relayed proxy leave and come back at once: it has again what it had.
func (w *World) comeBack(pod *Pod) {
	former := w.relayed[pod.name]
	former.stop()
	w.relayed[pod.name] = connect(w.relay.Address, pod, w.variant)
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		differs := differences(former, w.relayed[pod.name])
		if len(differs) == 0 {
			return
		}
		if time.Since(start) > 5*time.Second {
			w.fault("a proxy that came back while istiod was away lacks: %s", strings.Join(differs[:min(3, len(differs))], "; "))
			return
		}
	}
}

// reconnected waits until the relay has all of its streams at istiod, and has their first answers.
func (w *World) reconnected(streams int) {
	start := time.Now()
	for len(w.cluster.istiod.Discovery.Clients()) < streams {
		if time.Since(start) > 30*time.Second {
			w.fault("%d of %d streams are back at istiod after 30 s", len(w.cluster.istiod.Discovery.Clients()), streams)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
}

// change gives istiod a new Service without endpoints, and a route other weights.
func change(known *xds.FakeOptions) {
	known.KubernetesObjects = append(known.KubernetesObjects, service("late", "10.96.0.98"), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "late", Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: "late"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	})
	known.Configs = append(known.Configs, route(30))
	for number, object := range known.Configs {
		if object.GroupVersionKind == gvk.DestinationRule && object.Name == "cache" {
			spec := object.Spec.(*networking.DestinationRule)
			spec.TrafficPolicy.ConnectionPool = &networking.ConnectionPoolSettings{
				Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 11},
			}
			known.Configs[number].Spec = spec
		}
	}
}
