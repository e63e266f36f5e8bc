package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	securityclient "istio.io/client-go/pkg/apis/security/v1"
	"istio.io/istio/pilot/pkg/features"
	kubelib "istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/controllers"
	"istio.io/istio/pkg/kube/kclient/clienttest"
)

//go:embed ambient.yaml
var ambientObjects string

// ztunnelRule is for the classes of ztunnels that have everything.
//
//go:embed ztunnel.yaml
var ztunnelRule string

// ambientPlan is a cluster whose Pods have no sidecar, with a ztunnel on each Node.
func ambientPlan(count, nodes int, isOnDemand bool) *Plan {
	features.EnableAmbient, features.EnableAmbientWaypoints = true, true
	pods := podsOf(count, nodes)
	for _, pod := range pods {
		pod.annotations = map[string]string{"ambient.istio.io/redirection": "enabled"}
	}
	plan := plan(pods, nodes, 0)
	// Their Namespaces have labels.
	plan.objects = append(plan.objects[1:], read(ambientObjects)...)
	for node := range nodes {
		tunnel := &Pod{
			name: fmt.Sprintf("ztunnel-%d", node), namespace: "istio-system", workload: ztunnel, kind: ztunnel, version: "v1",
			address: fmt.Sprintf("10.4.0.%d", node+1), node: fmt.Sprintf("n%d", node), addressKind: addressKind, isOnDemand: isOnDemand,
		}
		// Some ask for workloads without Services, by the older name.
		if !isOnDemand && node >= nodes-2 {
			tunnel.addressKind = workloadKind
		}
		plan.pods = append(plan.pods, tunnel)
	}
	return plan
}

// read are the objects of a text.
func read(text string) []runtime.Object {
	var objects []runtime.Object
	for _, part := range strings.Split(text, "\n---\n") {
		object, _, err := kubelib.IstioCodec.UniversalDeserializer().Decode([]byte(part), nil, nil)
		check(err)
		objects = append(objects, object)
	}
	return objects
}

// apply creates an object at the present istiod's API, or changes it.
func apply[T controllers.ComparableObject](c *Cluster, object T) {
	clienttest.NewWriter[T](c.failer, c.client()).CreateOrUpdate(object)
}

// applyText does so for the policies, gateways and Namespaces of a text.
func (c *Cluster) applyText(text string) {
	for _, object := range read(text) {
		switch object := object.(type) {
		case *securityclient.AuthorizationPolicy:
			apply(c, object)
		case *securityclient.PeerAuthentication:
			apply(c, object)
		case *gateway.Gateway:
			apply(c, object)
		case *corev1.Namespace:
			apply(c, object)
		default:
			panic(fmt.Sprintf("%T", object))
		}
	}
}

func (c *Cluster) deletePod(pod *Pod) {
	check(c.client().Kube().CoreV1().Pods(pod.namespace).Delete(context.Background(), pod.name, metav1.DeleteOptions{}))
}

// newPod is a further Pod of a workload.
func newPod(like *Pod, name, address, node string) *Pod {
	pod := *like
	pod.name, pod.address, pod.node = name, address, node
	return &pod
}

const policy = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: more, namespace: prod }
spec:
  selector: { matchLabels: { app: %s } }
  rules: [{ from: [{ source: { principals: ["cluster.local/ns/prod/sa/%s"] } }] }]
`

const strict = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: strict, namespace: prod }
spec:
  selector: { matchLabels: { app: api } }
  mtls: { mode: STRICT }
`

const otherPorts = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: ports, namespace: prod }
spec:
  selector: { matchLabels: { app: db } }
  portLevelMtls: { 8080: { mode: STRICT }, 9090: { mode: STRICT } }
`

// ambientPushes are what ztunnels hear of.
func (w *World) ambientPushes() []Push {
	cluster := w.cluster
	pods, policies := cluster.pods, func() clienttest.TestWriter[*securityclient.AuthorizationPolicy] {
		return clienttest.NewWriter[*securityclient.AuthorizationPolicy](cluster.failer, cluster.client())
	}
	queue := service("queue", "10.96.0.99")
	queue.Spec.Selector = map[string]string{"app": "web"}
	return []Push{
		{"a new Pod", func() { apply(cluster, newPod(pods[0], "web-new", "10.1.9.1", "n3").object()) }},
		{"a Pod is relabelled", func() { cluster.relabel(pods[2], "v2") }},
		{"a Pod is not ready", func() {
			pod := pods[3].object()
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
			apply(cluster, pod)
		}},
		{"a Pod less", func() { cluster.deletePod(pods[5]) }},
		{"a new Service", func() { apply(cluster, queue) }},
		{"another port of a Service", func() {
			changed := queue.DeepCopy()
			changed.Spec.Ports[0].Port = 81
			apply(cluster, changed)
		}},
		{"a Service less", func() {
			check(cluster.client().Kube().CoreV1().Services(namespace).Delete(context.Background(), "queue", metav1.DeleteOptions{}))
		}},
		{"a waypoint for a Service", func() {
			service := service("api", "10.96.0.2")
			service.Labels = map[string]string{"istio.io/use-waypoint": "waypoint"}
			apply(cluster, service)
		}},
		{"another address of the waypoint", func() {
			cluster.applyText(strings.ReplaceAll(textOf("Gateway"), "value: waypoint.prod", "value: other.prod"))
		}},
		{"a waypoint for all of a namespace", func() {
			cluster.applyText(strings.Replace(textOf("Namespace"), "labels: {", "labels: { istio.io/use-waypoint: waypoint,", 1))
		}},
		{"a Node in another zone", func() {
			labels := map[string]string{corev1.LabelTopologyRegion: "r", corev1.LabelTopologyZone: "z2"}
			apply(cluster, kubernetesNode("n0", labels))
		}},
		{"a new policy", func() { cluster.applyText(fmt.Sprintf(policy, "api", "web")) }},
		{"a policy for other Pods", func() { cluster.applyText(fmt.Sprintf(policy, "cache", "api")) }},
		{"a policy less", func() { policies().Delete("more", namespace) }},
		{"strict mutual TLS for other ports", func() { cluster.applyText(otherPorts) }},
		{"strict mutual TLS for a workload", func() { cluster.applyText(strict) }},
		{"mutual TLS less strict", func() {
			clienttest.NewWriter[*securityclient.PeerAuthentication](cluster.failer, cluster.client()).Delete("strict", namespace)
		}},
	}
}

// textOf is the first object of a kind in the plan.
func textOf(kind string) string {
	parts := strings.Split(ambientObjects, "\n---\n")
	return parts[slices.IndexFunc(parts, func(part string) bool { return strings.Contains(part, "kind: "+kind+"\n") })]
}

// changeAmbient is what happens while istiod is away: a Pod less, one that is relabelled, a new one, and policies.
func changeAmbient(c *Cluster, objects []runtime.Object) []runtime.Object {
	gone, relabelled := c.pods[7].name, c.pods[8].name
	changed := []runtime.Object{newPod(c.pods[0], "web-late", "10.1.9.2", "n4").object()}
	for _, object := range objects {
		switch object := object.(type) {
		case *corev1.Pod:
			if object.Name == gone {
				continue
			}
			if object.Name == relabelled {
				object.Labels["version"] = "v2"
			}
		case *securityclient.AuthorizationPolicy:
			if object.Name == "from-prod" || object.Name == "more" {
				continue
			}
			if object.Name == "deny-v2" {
				object.Spec.Rules = nil
			}
		}
		changed = append(changed, object)
	}
	return append(changed, read(fmt.Sprintf(policy, "web", "db"))...)
}

// ambientKinds are the objects of the API that only ztunnels are told of.
func (c *Cluster) ambientKinds() []runtime.Object {
	var objects []runtime.Object
	ctx, all := context.Background(), metav1.ListOptions{}
	security, networking := c.client().Istio().SecurityV1(), c.client().Istio().NetworkingV1()
	for _, item := range must(security.AuthorizationPolicies("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(security.PeerAuthentications("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(networking.ServiceEntries("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(networking.WorkloadEntries("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	for _, item := range must(c.client().GatewayAPI().GatewayV1().Gateways("").List(ctx, all)).Items {
		objects = append(objects, item.DeepCopy())
	}
	return objects
}
