package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/mesh"
	kubelib "istio.io/istio/pkg/kube"
)

const namespace = "prod"

var workloads = []string{"web", "api", "db", "cache"}

// Pod is a Pod with a proxy.
type Pod struct {
	name, namespace, workload, address, node, version string
	// What few Pods have of their own: all of their addresses, labels beside the usual ones, labels that only the Pod has by now, the port
	// of the application, parts of the id, another service account, names of endpoints that the bootstrap of Envoy asks for, names of clusters
	// and listeners in the place of the wildcard, and changes of the node.
	addresses    []string
	labelled     map[string]string
	relabelled   map[string]string
	port         int32
	kind, domain string
	account      string
	asks         []string
	names        map[string][]string
	changes      []func(*core.Node)
	annotations  map[string]string
	// How the proxy connects, if not in plaintext.
	credentials credentials.TransportCredentials
	// A ztunnel: the kind of what it asks for beside policies, and whether it asks for nothing at first.
	addressKind string
	isOnDemand  bool
	// Kubernetes does not know it, as a virtual machine; and istiod refuses it.
	isAbsent, isRefused bool
	// The Pod from which it differs in one property, and the finding for which it needs a finer class than others.
	like    *Pod
	finding string
}

func (p *Pod) labels() map[string]string {
	labels := map[string]string{"app": p.workload, "version": p.version, "pod-template-hash": "1a2b3c"}
	maps.Copy(labels, p.labelled)
	return labels
}

func (p *Pod) ips() []string {
	if p.addresses != nil {
		return p.addresses
	}
	return []string{p.address}
}

func (p *Pod) serviceAccount() string { return cmp.Or(p.account, p.workload) }

func (p *Pod) object() *corev1.Pod {
	labels, isController := p.labels(), true
	maps.Copy(labels, p.relabelled)
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.workload + "-1a2b3c", Controller: &isController}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.name, Namespace: p.namespace, Labels: labels, Annotations: p.annotations,
			GenerateName: owner.Name + "-", OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PodSpec{
			NodeName:           p.node,
			ServiceAccountName: p.serviceAccount(),
			Containers: []corev1.Container{
				{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: cmp.Or(p.port, 8080)}}},
				{Name: "istio-proxy"},
			},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			PodIP:      p.ips()[0],
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, address := range p.ips() {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
	}
	return pod
}

// Plan is what a world begins with.
type Plan struct {
	pods          []*Pod
	objects       []runtime.Object
	configuration string
	mesh          *meshconfig.MeshConfig
	authority     *Authority
}

// Cluster is istiod with a Kubernetes API that both istiod and the relay read.
type Cluster struct {
	istiod *xds.FakeDiscoveryServer
	failer *failer
	mesh   *meshconfig.MeshConfig
	pods   []*Pod
	// Where istiod listens, from its first start on: in plaintext, and with TLS if there is an authority for it.
	address           string
	secureAddress     string
	authority         *Authority
	api               *httptest.Server
	podKind, nodeKind *Kind
}

func zone(node int) string { return fmt.Sprintf("z%d", node%3+1) }

// podsOf spreads Pods over all workloads, and each workload over all Nodes.
func podsOf(count, nodes int) []*Pod {
	var pods []*Pod
	for number := range count {
		workload := workloads[number%len(workloads)]
		pods = append(pods, &Pod{
			name:      fmt.Sprintf("%s-%d", workload, number/len(workloads)),
			namespace: namespace,
			workload:  workload,
			address:   fmt.Sprintf("10.1.%d.%d", number/250, number%250+1),
			node:      fmt.Sprintf("n%d", (number/len(workloads))%nodes),
			version:   "v1",
		})
	}
	return pods
}

func kubernetesNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// plan has the Nodes and Services of Pods, and `services` further Services with the endpoints of the first workload.
func plan(pods []*Pod, nodes, services int) *Plan {
	plan := &Plan{pods: pods, configuration: configuration, mesh: mesh.DefaultMeshConfig()}
	plan.mesh.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{}
	plan.objects = append(plan.objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for node := range nodes {
		labels := map[string]string{corev1.LabelTopologyRegion: "r", corev1.LabelTopologyZone: zone(node)}
		plan.objects = append(plan.objects, kubernetesNode(fmt.Sprintf("n%d", node), labels))
	}
	for number, workload := range workloads {
		plan.objects = append(plan.objects, service(workload, fmt.Sprintf("10.96.0.%d", number+1)), slice(pods, namespace, workload))
	}
	for number := range services {
		name := fmt.Sprintf("more-%d", number)
		more, slice := service(name, fmt.Sprintf("10.97.%d.%d", number/250, number%250+1)), slice(pods, namespace, workloads[0])
		more.Spec.Selector = map[string]string{"app": workloads[0]}
		slice.Name, slice.Labels, slice.Endpoints = name, map[string]string{discoveryv1.LabelServiceName: name}, slice.Endpoints[:3]
		plan.objects = append(plan.objects, more, slice)
	}
	return plan
}

func newCluster(plan *Plan) *Cluster {
	cluster := &Cluster{pods: plan.pods, mesh: plan.mesh, address: "127.0.0.1:0", secureAddress: "127.0.0.1:0", authority: plan.authority}
	objects := plan.objects
	for _, pod := range plan.pods {
		if !pod.isAbsent {
			objects = append(objects, pod.object())
		}
	}
	cluster.start(xds.FakeOptions{KubernetesObjects: objects, ConfigString: plan.configuration, Configs: []config.Config{filter("1")}})
	cluster.serveKubernetes()
	return cluster
}

// start begins an istiod, the first one and each that follows at its address.
func (c *Cluster) start(options xds.FakeOptions) {
	listener := must(net.Listen("tcp", c.address))
	c.address, c.failer = listener.Addr().String(), &failer{}
	options.MeshConfig = c.mesh
	options.ListenerBuilder = func() (net.Listener, error) { return listener, nil }
	options.KubeClientModifier = mayReadSecrets
	c.istiod = xds.NewFakeDiscoveryServer(c.failer, options)
	// Here all proxies connect at once, from one machine.
	c.istiod.Discovery.RequestRateLimit.SetLimit(rate.Inf)
	if c.authority != nil {
		c.serveSecurely()
	}
}

// configuration makes zones count, and has a policy for a version that no Pod has at first.
const configuration = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: by-zone, namespace: prod }
spec:
  host: "*.prod.svc.cluster.local"
  trafficPolicy:
    outlierDetection: { consecutive5xxErrors: 5 }
    loadBalancer: { localityLbSetting: { enabled: true } }
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: deny-v2, namespace: prod }
spec:
  selector: { matchLabels: { version: v2 } }
  action: DENY
  rules: [{ to: [{ operation: { methods: [DELETE] } }] }]
`

func service(name, address string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			ClusterIP: address,
			Selector:  map[string]string{"app": name},
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// slice is the endpoints of a workload: its Pods with an IPv4 address.
func slice(pods []*Pod, namespace, workload string) *discoveryv1.EndpointSlice {
	port, name, ready := int32(8080), "http", true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: workload, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: workload}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, pod := range pods {
		if pod.namespace == namespace && pod.workload == workload && !pod.isAbsent && strings.Contains(pod.ips()[0], ".") {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  pod.ips()[:1],
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				NodeName:   &pod.node,
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: pod.name, Namespace: namespace},
			})
		}
	}
	return slice
}

func (c *Cluster) slice(workload string) *discoveryv1.EndpointSlice {
	return slice(c.pods, namespace, workload)
}

func (c *Cluster) client() kubelib.Client { return c.istiod.KubeClient() }

// relabel gives a Pod another version, as `kubectl label` does. Its proxy goes on with the labels of its start.
func (c *Cluster) relabel(pod *Pod, version string) {
	object := pod.object()
	object.Labels["version"] = version
	must(c.client().Kube().CoreV1().Pods(pod.namespace).Update(context.Background(), object, metav1.UpdateOptions{}))
}

// serveKubernetes serves Pods and Nodes as an API server does: lists with a version, and watches from there.
func (c *Cluster) serveKubernetes() {
	kube := c.client().Kube().CoreV1()
	c.podKind = newKind(must(kube.Pods("").List(context.Background(), metav1.ListOptions{})))
	c.nodeKind = newKind(must(kube.Nodes().List(context.Background(), metav1.ListOptions{})))
	c.followKubernetes()
	mux := http.NewServeMux()
	mux.Handle("/api/v1/pods", c.podKind)
	mux.Handle("/api/v1/nodes", c.nodeKind)
	c.api = httptest.NewServer(mux)
}

// followKubernetes takes the changes at the present istiod's objects.
func (c *Cluster) followKubernetes() {
	kube := c.client().Kube().CoreV1()
	go c.podKind.follow(must(kube.Pods("").Watch(context.Background(), metav1.ListOptions{})))
	go c.nodeKind.follow(must(kube.Nodes().Watch(context.Background(), metav1.ListOptions{})))
}

// Kind is all objects of a kind and their changes. The number of changes is the version.
type Kind struct {
	lock    sync.Mutex
	changed *sync.Cond
	objects map[string]map[string]any
	events  []map[string]any
}

func newKind(list runtime.Object) *Kind {
	kind := &Kind{objects: map[string]map[string]any{}}
	kind.changed = sync.NewCond(&kind.lock)
	var read struct{ Items []map[string]any }
	check(json.Unmarshal(must(json.Marshal(list)), &read))
	for _, item := range read.Items {
		kind.put("ADDED", item)
	}
	return kind
}

func (k *Kind) put(event string, object map[string]any) {
	k.lock.Lock()
	defer k.lock.Unlock()
	metadata := object["metadata"].(map[string]any)
	metadata["resourceVersion"] = strconv.Itoa(len(k.events) + 1)
	key := fmt.Sprint(metadata["namespace"], "/", metadata["name"])
	if event == "DELETED" {
		delete(k.objects, key)
	} else {
		k.objects[key] = object
	}
	k.events = append(k.events, map[string]any{"type": event, "object": object})
	k.changed.Broadcast()
}

func (k *Kind) follow(changes watch.Interface) {
	for change := range changes.ResultChan() {
		var object map[string]any
		check(json.Unmarshal(must(json.Marshal(change.Object)), &object))
		k.put(string(change.Type), object)
	}
}

func (k *Kind) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	encoder := json.NewEncoder(answer)
	answer.Header().Set("content-type", "application/json")
	if query.Get("watch") == "" {
		k.lock.Lock()
		defer k.lock.Unlock()
		items := []any{}
		for _, object := range k.objects {
			items = append(items, object)
		}
		version := map[string]string{"resourceVersion": strconv.Itoa(len(k.events))}
		check(encoder.Encode(map[string]any{"kind": "List", "apiVersion": "v1", "metadata": version, "items": items}))
		return
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	end := time.AfterFunc(time.Duration(seconds)*time.Second, k.changed.Broadcast)
	defer end.Stop()
	defer context.AfterFunc(request.Context(), k.changed.Broadcast)()
	over := time.Now().Add(time.Duration(seconds) * time.Second)
	next, _ := strconv.Atoi(query.Get("resourceVersion"))
	answer.(http.Flusher).Flush()
	for {
		k.lock.Lock()
		for next >= len(k.events) && request.Context().Err() == nil && time.Now().Before(over) {
			k.changed.Wait()
		}
		if next >= len(k.events) {
			k.lock.Unlock()
			return
		}
		line := must(json.Marshal(k.events[next]))
		k.lock.Unlock()
		next++
		if _, err := answer.Write(append(line, '\n')); err != nil {
			return
		}
		answer.(http.Flusher).Flush()
	}
}

// kubeconfig writes a file of kubectl for the API.
func kubeconfig(directory, api string) string {
	file := filepath.Join(directory, "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q}}], users: [{name: c, user: {}}], contexts: [{name: c, context: {cluster: c, user: c}}]}`, api)
	check(os.WriteFile(file, []byte(text), 0o600))
	return file
}
