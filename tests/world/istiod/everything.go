package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/features"
)

// everythingConfiguration is what Istio is told beside `configuration`.
//
//go:embed everything.yaml
var everythingConfiguration string

// finerRules are the classes of the relay, for a mesh with all of this.
//
//go:embed rules.yaml
var finerRules string

// withOtherRules replaces the rules of a configuration.
func withOtherRules(config, directory, rules string) string {
	text := string(must(os.ReadFile(config)))
	shipped := regexp.MustCompile(`(?m)^node_classes:\n(?:(?: .*)?\n)*`)
	if len(shipped.FindAllString(text, -1)) != 1 {
		panic(config + " has no rules")
	}
	file := filepath.Join(directory, "rules.yaml")
	check(os.WriteFile(file, []byte(shipped.ReplaceAllLiteralString(text, rules+"\n")), 0o600))
	return file
}

const (
	ownAddress = "W4, own address"
	ownNode    = "W5, own Node"
)

// Everything collects Pods that differ from another one in one property.
type Everything struct {
	pods []*Pod
}

// add makes a Pod like another one but for some changes. A name that is there already gets a number.
func (e *Everything) add(name string, like *Pod, changes ...func(*Pod)) *Pod {
	pod := *like
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	pod.name, pod.like, pod.addresses = name, like, nil
	for number := 2; slices.ContainsFunc(e.pods, func(other *Pod) bool { return other.name == pod.name }); number++ {
		pod.name = fmt.Sprintf("%s-%d", name, number)
	}
	pod.address = fmt.Sprintf("10.2.%d.%d", len(e.pods)/250, len(e.pods)%250+1)
	pod.labelled, pod.changes = maps.Clone(like.labelled), slices.Clone(like.changes)
	for _, change := range changes {
		change(&pod)
	}
	e.pods = append(e.pods, &pod)
	return &pod
}

// key is one key of the metadata. Without a value it is left out.
func key(name string, value any) func(*Pod) {
	return node(func(node *core.Node) {
		if value == nil {
			delete(node.Metadata.Fields, name)
		} else {
			node.Metadata.Fields[name] = must(structpb.NewValue(value))
		}
	})
}

func node(change func(*core.Node)) func(*Pod) {
	return func(pod *Pod) { pod.changes = append(pod.changes, change) }
}

// label is a label that the Pod was born with.
func label(name, value string) func(*Pod) {
	return func(pod *Pod) { pod.labelled = mapOf(pod.labelled, name, value) }
}

// relabelledTo is a label that the proxy does not know of.
func relabelledTo(name, value string) func(*Pod) {
	return func(pod *Pod) { pod.relabelled = mapOf(pod.relabelled, name, value) }
}

func mapOf(former map[string]string, name, value string) map[string]string {
	next := map[string]string{name: value}
	maps.Copy(next, former)
	next[name] = value
	return next
}

func at(node string) func(*Pod)       { return func(pod *Pod) { pod.node = node } }
func kind(kind string) func(*Pod)     { return func(pod *Pod) { pod.kind = kind } }
func domain(domain string) func(*Pod) { return func(pod *Pod) { pod.domain = domain } }

func addresses(addresses ...string) func(*Pod) {
	return func(pod *Pod) { pod.addresses = addresses }
}

// again is another Pod with the same properties.
func again(pod *Pod) { pod.like = nil }

// workload is a base of its own: other labels, services and account.
func workload(name, namespace, finding string) func(*Pod) {
	return func(pod *Pod) { pod.workload, pod.namespace, pod.finding, pod.like = name, namespace, finding, nil }
}

// everything is the world of proxies that differ in one property each, and of the objects that make istiod look at it.
func everything() *Plan {
	for _, feature := range []*bool{
		&features.EnableAmbient, &features.EnableAmbientWaypoints, &features.EnableHBONESend, &features.EnableSidecarHBONEListening,
		&features.EnableIngressWaypointRouting,
	} {
		*feature = true
	}
	all := &Everything{pods: podsOf(16, 4)}
	for _, pod := range all.pods {
		for _, change := range []func(*Pod){
			key("POD_PORTS", podPorts(8080)), key("ENVOY_STATUS_PORT", 15021), key("ENVOY_PROMETHEUS_PORT", 15090),
			key("PROXY_CONFIG", proxyConfig("concurrency", 2)),
		} {
			change(pod)
		}
	}
	all.registry()
	all.metadata()
	all.nodes()
	all.routers()
	all.finer()
	plan := plan(all.pods, 4, 0)
	plan.configuration += "---\n" + everythingConfiguration
	plan.mesh.ExtensionProviders = append(plan.mesh.ExtensionProviders, &meshconfig.MeshConfig_ExtensionProvider{
		Name: "traces",
		Provider: &meshconfig.MeshConfig_ExtensionProvider_Datadog{
			Datadog: &meshconfig.MeshConfig_ExtensionProvider_DatadogTracingProvider{Service: "db.prod.svc.cluster.local", Port: 80},
		},
	})
	plan.objects = append(plan.objects, everythingObjects(all.pods)...)
	return plan
}

func podPorts(port int) string {
	return fmt.Sprintf(`[{"name":"http","containerPort":%d,"protocol":"TCP"}]`, port)
}

// proxyConfig is the configuration of the mesh with one field more.
func proxyConfig(field string, value any) map[string]any {
	return map[string]any{"discoveryAddress": "istiod.istio-system.svc:15012", field: value}
}

// everythingObjects are the Kubernetes objects besides those of `plan`.
func everythingObjects(pods []*Pod) []runtime.Object {
	objects := []runtime.Object{
		kubernetesNode("region", map[string]string{corev1.LabelTopologyRegion: "r2", corev1.LabelTopologyZone: "z1"}),
		kubernetesNode("sub-zone", map[string]string{
			corev1.LabelTopologyRegion: "r", corev1.LabelTopologyZone: "z1", "topology.istio.io/subzone": "s1",
		}),
		kubernetesNode("nowhere", nil),
	}
	for _, name := range []string{"near", "other", "istio-system"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// The port of an application by its name, which each Pod may have elsewhere.
	byName := service("by-name", "10.96.2.9")
	byName.Spec.Selector, byName.Spec.Ports[0].TargetPort = map[string]string{"app": "web"}, intstr.FromString("http")
	byName.Spec.Ports[0].Port = 88
	objects = append(objects, byName, named(slice(pods, namespace, "web"), "by-name", "http"))
	store := service("store", corev1.ClusterIPNone)
	store.Spec.Ports[0].Name = "tcp-store"
	objects = append(objects, store, named(slice(pods, namespace, "store"), "store", "tcp-store"))
	for number, name := range []string{"own", "ingress"} {
		objects = append(objects, service(name, fmt.Sprintf("10.96.2.%d", number+1)), slice(pods, namespace, name))
	}
	// The gateway of another network, which stands for the endpoints there.
	gateway := service("gateway-of-network-2", "10.96.2.10")
	gateway.Labels, gateway.Spec.Type = map[string]string{"topology.istio.io/network": "network-2"}, corev1.ServiceTypeLoadBalancer
	gateway.Spec.Ports[0].Port = 15443
	gateway.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}
	objects = append(objects, gateway)
	return append(objects, nearServices(pods)...)
}

// nearServices have endpoints that depend on the Node of the proxy, or on its network, for the proxies of their namespace only.
func nearServices(pods []*Pod) []runtime.Object {
	var objects []runtime.Object
	local, nearest := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferSameNode
	for number, name := range []string{"local", "nearest", "failover", "far"} {
		service, workload := service(name, fmt.Sprintf("10.96.1.%d", number+1)), "agent"
		service.Namespace, service.Annotations = "near", map[string]string{"networking.istio.io/exportTo": "."}
		switch name {
		case "far":
			workload = name
		case "local":
			service.Spec.InternalTrafficPolicy = &local
		case "nearest":
			service.Spec.TrafficDistribution = &nearest
		}
		service.Spec.Selector = map[string]string{"app": workload}
		objects = append(objects, service, named(slice(pods, "near", workload), name, "http"))
	}
	return objects
}

// named are the endpoints of another Service.
func named(slice *discoveryv1.EndpointSlice, name, port string) *discoveryv1.EndpointSlice {
	slice.Name, slice.Labels = name, map[string]string{discoveryv1.LabelServiceName: name}
	slice.Ports[0].Name = &port
	return slice
}

// counterProof is the world under rules that are too coarse for it.
func (w *World) counterProof(*Options) {
	wrong, of := w.different(), map[string]int{}
	for name := range wrong {
		of[w.relayed[name].pod.finding]++
	}
	w.row("at rest, with the plain rules", len(wrong))
	for _, finding := range []string{ownAddress, ownNode} {
		fmt.Printf("  %s: %d wrong\n", finding, of[finding])
		if of[finding] == 0 {
			w.fault("the plain rules do for the proxies of %s", finding)
		}
	}
	if of[""] > 0 {
		w.fault("%d other proxies are wrong", of[""])
		for name, differs := range wrong {
			if w.relayed[name].pod.finding == "" {
				fmt.Printf("  %s: %s\n", name, strings.Join(differs, "; "))
			}
		}
	}
}

// properties fails if istiod looks at few of the properties: a proxy that has the same as one without the property proves nothing.
func (w *World) properties() {
	const least = 90
	count, same := 0, []string{}
	for _, pod := range w.cluster.pods {
		if pod.like == nil {
			continue
		}
		count++
		if len(differences(w.direct[pod.like.name], w.direct[pod.name])) == 0 {
			same = append(same, pod.name)
		}
	}
	fmt.Printf("  %d of %d properties change istiod's answer\n", count-len(same), count)
	if count-len(same) < least {
		w.fault("fewer than %d: %s change nothing", least, strings.Join(same, ", "))
	}
}
