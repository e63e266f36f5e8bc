package main

import (
	"context"
	_ "embed"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// demandRules are for the classes of ztunnels that ask on demand.
//
//go:embed demand.yaml
var demandRules string

// asked is a name by which a ztunnel asks for a workload, in one of three forms: a VIP, a Service, or the address of one Pod.
func (w *World) asked(number, workload int) string {
	switch number % 3 {
	case 0:
		return fmt.Sprintf("/10.96.0.%d", workload+1)
	case 1:
		return fmt.Sprintf("%s/%s.%s.svc.cluster.local", namespace, workloads[workload], namespace)
	}
	return "/" + w.cluster.pods[(4*number+workload)%60].address
}

// demandAll has all ztunnels ask for a name, there and here.
func (w *World) demandAll(name func(number int) string) {
	for number, pod := range w.pods {
		w.direct[pod.name].demand(name(number))
		w.relayed[pod.name].demand(name(number))
	}
}

// onDemand is the world of ztunnels that ask for addresses by name, each with its twin. istiod answers with more than was asked for.
func (w *World) onDemand(o *Options) {
	// istiod sends the workloads of a ztunnel's Node before it asks for anything. The relay asks nothing then.
	fmt.Printf("  before any name, %d of %d ztunnels lack workloads of their Node\n", len(w.different()), len(w.relayed))
	for _, push := range w.demands() {
		w.push(push)
	}
	w.unasked()
	w.atMost(o.streams)
	w.relayed, w.direct = comeBackAll(w.relay.Address, w.relayed), comeBackAll(w.address, w.direct)
	w.compare("after all ztunnels came back with what they had")
	w.nothingLost()
	w.cluster.relabel(w.cluster.pods[12], "v3")
	w.cluster.relabel(w.cluster.pods[13], "v3")
	w.compare("after Pods behind asked names are relabelled")
	w.restartAmbient()
	w.cluster.relabel(w.cluster.pods[12], "v4")
	w.cluster.deletePod(w.cluster.pods[13])
	w.compare("after a Pod is relabelled, and one is gone")
	w.demandAll(func(number int) string { return w.asked(number, (number+2)%4) })
	w.compare("after third names")
	w.atMost(o.streams)
}

// demands are what happens to ztunnels that ask for names.
func (w *World) demands() []Push {
	cluster := w.cluster
	pods, kube := cluster.pods, cluster.client().Kube().CoreV1()
	late, near := newPod(pods[0], "web-late-name", "10.1.9.9", "n3"), newPod(pods[1], "api-near", "10.1.9.8", "n0")
	return []Push{
		{"first names", func() { w.demandAll(func(number int) string { return w.asked(number, number%4) }) }},
		{"further names", func() { w.demandAll(func(number int) string { return w.asked(number+1, (number+1)%4) }) }},
		{"a name that nobody has", func() { w.demandAll(func(int) string { return "/" + late.address }) }},
		{"its Pod comes", func() { apply(cluster, late.object()) }},
		{"an endpoint of asked names is relabelled", func() {
			for _, pod := range pods[:4] {
				cluster.relabel(pod, "v2")
			}
		}},
		{"a new Pod behind asked names", func() { apply(cluster, near.object()) }},
		{"other ports of their Services", func() {
			for number, workload := range workloads {
				changed := service(workload, fmt.Sprintf("10.96.0.%d", number+1))
				changed.Spec.Ports[0].Port = 81
				apply(cluster, changed)
			}
		}},
		{"Pods behind asked names are gone", func() {
			for _, pod := range pods[4:8] {
				cluster.deletePod(pod)
			}
		}},
		{"another policy", func() { cluster.applyText(fmt.Sprintf(policy, "web", "db")) }},
		{"a Service less", func() { check(kube.Services(namespace).Delete(context.Background(), "cache", metav1.DeleteOptions{})) }},
		{"names that are given up", func() {
			for number, pod := range w.pods[3:6] {
				name, next := w.asked(number+3, (number+3)%4), fmt.Sprintf("%s/spare-%d.%s.svc.cluster.local", namespace, number, namespace)
				w.direct[pod.name].release(name, next)
				w.relayed[pod.name].release(name, next)
			}
		}},
		{"Pods behind the names that were given up are relabelled", func() {
			for _, pod := range pods[8:12] {
				cluster.relabel(pod, "v2")
			}
		}},
	}
}

// unasked fails if istiod gave the ztunnels little beyond what they asked for by these names.
func (w *World) unasked() {
	resources, aliases := 0, 0
	for _, proxy := range w.direct {
		proxy.lock.Lock()
		resources += len(proxy.has[addressKind])
		for _, resource := range proxy.has[addressKind] {
			aliases += len(resource.Aliases)
		}
		proxy.lock.Unlock()
	}
	fmt.Printf("  %d ztunnels have %d addresses with %d aliases\n", len(w.direct), resources, aliases)
	if resources < 5*len(w.direct) || aliases < resources {
		w.fault("istiod gives little beyond the names")
	}
}
