// The shipped configuration for istiod, before the real istiod: its discovery server, with a Kubernetes API in the process that
// istiod and the relay read. Each Pod's proxy is there twice, straight at istiod and behind the relay, and both must have the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"istio.io/istio/pkg/log"

	"sluice.example/tests/world/shared"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func unmarshal(body []byte, message proto.Message) error {
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, message)
}

// failer stands for the test that istiod's own helpers expect. The end of the test is the end of istiod.
type failer struct{ atEnd []func() }

func (*failer) Fail()                           { panic("istiod failed") }
func (*failer) FailNow()                        { panic("istiod failed") }
func (*failer) Fatal(args ...any)               { panic(fmt.Sprint(args...)) }
func (*failer) Fatalf(text string, args ...any) { panic(fmt.Sprintf(text, args...)) }
func (*failer) Log(...any)                      {}
func (*failer) Logf(string, ...any)             {}
func (*failer) TempDir() string                 { return must(os.MkdirTemp("", "istiod")) }
func (*failer) Helper()                         {}
func (*failer) Skip(...any)                     {}
func (f *failer) Cleanup(do func())             { f.atEnd = append(f.atEnd, do) }

func (f *failer) end() {
	for _, do := range slices.Backward(f.atEnd) {
		do()
	}
}

// startRelay runs a shipped configuration with the addresses of this world, and with further changes.
func startRelay(binary, config, directory, istiod, api string, changes ...func(string) string) *shared.Relay {
	relay := shared.NewRelay()
	text := string(must(os.ReadFile(config)))
	for from, to := range map[string]string{
		"istiod.istio-system.svc:15010": istiod,
		"0.0.0.0:15010":                 relay.Address,
		"kubernetes: {}":                fmt.Sprintf("kubernetes: { kubeconfig: %q }", kubeconfig(directory, api)),
	} {
		if from == "kubernetes: {}" && !strings.Contains(text, "\nfacts:") {
			continue
		}
		if !strings.Contains(text, from) {
			panic(config + " has no " + from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	if regexp.MustCompile(`(?m)^(admin|linger):`).MatchString(text) {
		panic(config + " has an admin listener, or a linger")
	}
	const creds = "    channel_creds: [{ type: insecure }]\n"
	if strings.Count(text, creds) != 1 {
		panic(config + " has other credentials")
	}
	text = strings.Replace(text, creds, "    report_rejections: true\n"+creds, 1)
	for _, change := range changes {
		text = change(text)
	}
	text += fmt.Sprintf("\nadmin: { address: %q }\nlinger: 2s\n", relay.Admin)
	relay.Start(binary, filepath.Join(directory, "sluice.yaml"), text)
	return relay
}

// World is all proxies, each one twice.
type World struct {
	cluster *Cluster
	// Where the proxies without the relay connect, and the Pods of the proxies.
	address         string
	pods            []*Pod
	relay           *shared.Relay
	variant         Variant
	direct, relayed map[string]*Proxy
	// Proxies that istiod refuses behind the relay.
	strangers, strangersRelayed map[string]*Proxy
	faults, rows                int
	// The relay has a stream of its own for each proxy.
	alone bool
	// The last row, and the silence after which all have heard what there is.
	compared time.Time
	quiet    time.Duration
}

// settleAll waits until no proxy has heard anything for a while, if any has since a change, and returns the time of the last word.
func settleAll(quiet time.Duration, change time.Time, sides ...map[string]*Proxy) time.Time {
	last := time.Time{}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(100 * time.Millisecond) {
		for _, side := range sides {
			for _, proxy := range side {
				if since := proxy.quietSince(); since.After(last) {
					last = since
				}
			}
		}
		if time.Since(last) > quiet && time.Since(start) > quiet && (last.After(change) || time.Since(start) > 2*time.Second) {
			break
		}
	}
	return last
}

func (w *World) fault(text string, args ...any) {
	w.faults++
	fmt.Printf("  FAULT: "+text+"\n", args...)
}

// different are the proxies that are other than without the relay, with some of what they have otherwise. Where there are any, the answer
// is that of a second look: it comes after 2 s without a word.
func (w *World) different() map[string][]string {
	var found map[string][]string
	for _, quiet := range []time.Duration{w.quiet, 2 * time.Second} {
		settleAll(quiet, w.compared, w.direct, w.relayed)
		found = map[string][]string{}
		for name, relayed := range w.relayed {
			if differs := differences(w.direct[name], relayed); len(differs) > 0 {
				found[name] = differs[:min(3, len(differs))]
			}
		}
		if len(found) == 0 {
			break
		}
	}
	w.compared = time.Now()
	return found
}

func (w *World) row(what string, wrong int) {
	w.rows++
	streams := w.relay.Streams()
	fmt.Printf("%-58s %3d proxies, %3d wrong, %3d upstream streams\n", what, len(w.relayed), wrong, streams)
}

// compare is a row of the matrix.
func (w *World) compare(what string) {
	wrong := w.different()
	w.withdrawn(what)
	for number, name := range slices.Sorted(maps.Keys(wrong)) {
		if number < 3 {
			fmt.Printf("  %s: %s\n", name, strings.Join(wrong[name], "; "))
		}
	}
	w.faults += len(wrong)
	w.row(what, len(wrong))
}

// withdrawn fails for each relayed proxy that lost resources, since the last comparison, that its twin has.
func (w *World) withdrawn(when string) {
	var found []string
	for name, relayed := range w.relayed {
		direct := w.direct[name]
		relayed.lock.Lock()
		taken := relayed.taken
		relayed.taken = map[string]map[string]bool{}
		relayed.lock.Unlock()
		direct.lock.Lock()
		lost := []string{}
		for kind, names := range taken {
			for resource := range names {
				if _, isHeld := direct.has[kind][resource]; isHeld {
					lost = append(lost, path.Base(kind)+" "+resource)
				}
			}
		}
		direct.lock.Unlock()
		if len(lost) > 0 {
			slices.Sort(lost)
			found = append(found, fmt.Sprintf("%s lost %d resources that istiod did not withdraw: %s", name, len(lost), lost[0]))
		}
	}
	slices.Sort(found)
	for _, text := range found[:min(3, len(found))] {
		fmt.Printf("  FAULT: %s: %s\n", when, text)
	}
	w.faults += len(found)
}

// atMost fails if the relay stays with more upstream streams than a world allows; 0: any number. A stream that takes over has another one
// beside it for a moment.
func (w *World) atMost(streams int) {
	found := 0
	for start := time.Now(); time.Since(start) < 5*time.Second; time.Sleep(100 * time.Millisecond) {
		found = w.relay.Streams()
		if streams == 0 || found <= streams {
			return
		}
	}
	w.fault("%d upstream streams, at most %d", found, streams)
}

// Options are those of the command line.
type Options struct {
	binary, config, directory, rules        string
	pods, services, streams                 int
	apart, alone, sotw, everything, isPlain bool
	ztunnel, onDemand, secrets              bool
	isProved, isCoarse                      bool
	isGain, isServed                        bool
}

func options() *Options {
	o := &Options{}
	flag.StringVar(&o.binary, "sluice", "target/release/sluice", "the relay")
	flag.StringVar(&o.config, "config", "config/istio-kubernetes.yaml", "the shipped configuration")
	flag.IntVar(&o.pods, "pods", 200, "Pods with a sidecar")
	flag.IntVar(&o.streams, "streams", 12, "the most upstream streams at rest; 0: any number")
	flag.IntVar(&o.services, "services", 0, "Services besides those of the Pods")
	flag.BoolVar(&o.apart, "apart", false, "listeners have a class for each proxy, by a rule of their own")
	flag.BoolVar(&o.alone, "alone", false, "the relay cannot reach the API of Kubernetes: each proxy is a class")
	flag.BoolVar(&o.sotw, "sotw", false, "all proxies speak state of the world")
	flag.BoolVar(&o.everything, "everything", false, "proxies that differ in one property each, and the finer rules that they need")
	flag.BoolVar(&o.ztunnel, "ztunnel", false, "ztunnels that subscribe to everything, one on each Node, in the place of sidecars")
	flag.BoolVar(&o.onDemand, "on-demand", false, "ztunnels that ask on demand")
	flag.BoolVar(&o.secrets, "secrets", false, "gateways with Secrets, with mutual TLS")
	flag.BoolVar(&o.isProved, "proof", false, "the relay proves its classes, and finds nothing")
	flag.BoolVar(&o.isCoarse, "coarse", false, "for --proof: rules that are too coarse; the relay then has to find out where")
	flag.StringVar(&o.rules, "rules", "", "for --everything: a file with `node_classes` in the place of rules.yaml; for --ztunnel, "+
		"--on-demand and --secrets: one with those that stand before the shipped ones")
	flag.BoolVar(&o.isPlain, "plain-rules", false, "the rules as shipped; --everything then has to make proxies wrong")
	flag.BoolVar(&o.isGain, "gain", false, "measure the work of istiod instead")
	flag.BoolVar(&o.isServed, "serve", false, "for --gain: istiod alone")
	flag.Parse()
	return o
}

func main() {
	o := options()
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel)
	}
	// Before istiod makes its metrics.
	rejects()
	o.directory = must(os.MkdirTemp("", "world"))
	defer os.RemoveAll(o.directory)
	switch {
	case o.isServed:
		serveWorld(o.pods, o.services)
	case o.isGain:
		gain(o.binary, o.config, o.directory, o.pods, o.services)
	default:
		if !matrix(o) {
			os.Exit(1)
		}
	}
}

// apartRule takes one type apart: two streams of the relay have one proxy's address then, and istiod tells a change of labels to one of them
// (W8).
const apartRule = `node_classes:
  - match: { types: [envoy.config.listener.v3.Listener] }
    split_by: { id: true, cluster: true, locality: sub_zone, metadata: all, facts: all }
    upstream_node: member
`

// withRules puts rules before those of a configuration.
func withRules(config, directory, rules string) string {
	text := strings.Replace(string(must(os.ReadFile(config))), "node_classes:\n", rules, 1)
	file := filepath.Join(directory, "rules.yaml")
	check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// begin is the plan of a world, and its configuration of the relay.
func (o *Options) begin() (*Plan, string) {
	rules := func(standard string) string {
		if o.rules != "" {
			standard = string(must(os.ReadFile(o.rules)))
		}
		return withRules(o.config, o.directory, standard)
	}
	switch {
	case o.isCoarse:
		return plan(podsOf(o.pods, 20), 20, o.services), withOtherRules(o.config, o.directory, coarseRules)
	case o.everything && o.isPlain:
		return everything(), o.config
	case o.everything:
		finer := finerRules
		if o.rules != "" {
			finer = string(must(os.ReadFile(o.rules)))
		}
		return everything(), withOtherRules(o.config, o.directory, finer)
	case o.onDemand:
		return ambientPlan(o.pods, 20, true), rules(demandRules)
	case o.secrets && o.isPlain:
		return secretsPlan(), o.config
	case o.secrets:
		return secretsPlan(), rules(secretRules)
	case o.ztunnel && o.isPlain:
		return ambientPlan(o.pods, 20, false), o.config
	case o.ztunnel:
		return ambientPlan(o.pods, 20, false), rules(ztunnelRule)
	case o.apart:
		return plan(podsOf(o.pods, 20), 20, o.services), rules(apartRule)
	}
	return plan(podsOf(o.pods, 20), 20, o.services), o.config
}

// matrix compares all proxies at rest and after each change.
func matrix(o *Options) bool {
	begin, config := o.begin()
	cluster := newCluster(begin)
	api := cluster.api.URL
	if o.alone {
		api = "http://" + shared.FreePort()
	}
	var changes []func(string) string
	if o.secrets {
		changes = append(changes, cluster.secureRelay(o.directory))
	}
	if o.isProved {
		changes = append(changes, withProof)
	}
	relay := startRelay(o.binary, config, o.directory, cluster.address, api, changes...)
	defer relay.End()
	world := &World{
		cluster: cluster, relay: relay, variant: delta, alone: o.alone || o.apart, address: cluster.address, quiet: time.Second,
	}
	if o.ztunnel || o.onDemand || o.secrets {
		world.quiet = 500 * time.Millisecond
	}
	if o.sotw {
		world.variant = sotw
	}
	play, plays := world.run, func(pod *Pod) bool { return true }
	switch {
	case o.onDemand || o.ztunnel:
		play, plays = world.ambient, func(pod *Pod) bool { return pod.kind == ztunnel }
		if o.onDemand {
			play = world.onDemand
		}
	case o.secrets:
		play, plays = world.ofSecrets, func(pod *Pod) bool { return pod.account == account }
		world.address = cluster.secureAddress
		var strangers []*Pod
		for _, pod := range cluster.pods {
			if pod.account == otherAccount {
				strangers = append(strangers, pod)
			}
		}
		world.strangers = connectAll(world.address, strangers, world.variant)
		world.strangersRelayed = connectAll(relay.Address, strangers, world.variant)
	case o.isCoarse:
		play = world.tooCoarse
	case o.isProved:
		play = world.proved
	case o.isPlain:
		play = world.counterProof
	}
	world.pods = slices.DeleteFunc(slices.Clone(cluster.pods), func(pod *Pod) bool { return !plays(pod) })
	world.direct = connectAll(world.address, world.pods, world.variant)
	world.relayed = connectAll(relay.Address, world.pods, world.variant)
	play(o)
	if world.faults > 0 {
		fmt.Printf("the log of the relay:\n%s\n", relay.Warnings())
	}
	fmt.Printf("world: %d passed, %d failed, 0 skipped\n", world.rows-min(world.rows, world.faults), world.faults)
	return world.faults == 0
}

func (w *World) run(o *Options) {
	w.compare("at rest")
	w.atMost(o.streams)
	if o.everything {
		w.properties()
	}
	for _, push := range w.pushes() {
		w.push(push)
	}
	w.otherVariant()
	w.rejections()
	w.restart()
	first, last := w.cluster.pods[0], w.cluster.pods[len(w.cluster.pods)-1]
	if o.everything {
		last = w.cluster.pods[12]
	}
	w.relabel(last, false)
	w.relabel(first, true)
	if !o.everything {
		w.leave()
	}
}

// otherVariant fails if a fresh proxy of the other variant has something else than one that has lived through all pushes.
func (w *World) otherVariant() {
	other := map[Variant]Variant{delta: sotw, sotw: delta}[w.variant]
	for _, pod := range w.cluster.pods[:4] {
		fresh := map[string]*Proxy{pod.name: connect(w.cluster.address, pod, other)}
		settleAll(500*time.Millisecond, time.Time{}, fresh)
		if differs := differences(w.direct[pod.name], fresh[pod.name]); len(differs) > 0 {
			w.fault("%s has something else by %s: %s", pod.name, other, strings.Join(differs[:min(3, len(differs))], "; "))
		}
		endAll(fresh)
	}
}

// relabel gives a Pod a label that a policy selects: its proxy has the policy as soon as without the relay, and in the end nobody else
// has it. `known`: istiod knows the Pod's class by this Pod.
func (w *World) relabel(pod *Pod, known bool) {
	has := func(proxy *Proxy) bool {
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		for _, listener := range proxy.has[listeners] {
			if strings.Contains(string(listener.Body), "deny-v2") {
				return true
			}
		}
		return false
	}
	// istiod tells a change of labels to one stream of an address. Where the relay has a stream for the Pod, its twin leaves before, and
	// is back when istiod has told the relay.
	isTwinAway := func(version string) bool {
		isAway := known || w.alone || version == "v1"
		if isAway {
			w.direct[pod.name].stop()
			time.Sleep(500 * time.Millisecond)
		}
		w.cluster.relabel(pod, version)
		return isAway
	}
	const back = 1500 * time.Millisecond
	isAway := isTwinAway("v2")
	start, after, others := time.Now(), map[string]time.Duration{}, map[string]bool{}
	for time.Since(start) < 20*time.Second && (len(after) < 2 || time.Since(start) < 3*time.Second) {
		if isAway && time.Since(start) > back {
			isAway = false
			w.direct[pod.name] = connect(w.cluster.address, pod, w.variant)
		}
		for side, proxy := range map[string]*Proxy{"direct": w.direct[pod.name], "relayed": w.relayed[pod.name]} {
			if _, arrived := after[side]; !arrived && has(proxy) {
				after[side] = time.Since(start).Round(time.Millisecond)
			}
		}
		for name, proxy := range w.relayed {
			if name != pod.name && has(proxy) {
				others[name] = true
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	direct := after["direct"].String()
	if after["direct"] >= back {
		direct = "?"
	}
	fmt.Printf("  the policy arrives after %s direct, %v relayed; %d others had it for a moment\n", direct, after["relayed"], len(others))
	if taken, arrived := after["relayed"]; !arrived || taken > after["direct"]+3*time.Second {
		w.fault("the policy is late at the relabelled Pod")
	}
	if !known && len(others) > 0 {
		w.fault("other Pods had the policy: %v", others)
	}
	what := "a relabelling"
	if known {
		what = "a relabelling of a class's Pod at istiod"
	}
	w.compare("after " + what)
	for name, proxy := range w.relayed {
		if has(proxy) != (name == pod.name) {
			w.fault("%s: has the policy for v2: %v", name, has(proxy))
		}
	}
	if isTwinAway("v1") {
		time.Sleep(back)
		w.direct[pod.name] = connect(w.cluster.address, pod, w.variant)
	}
	w.compare("after " + what + ", taken back")
}

// leave ends the first proxies of each workload and zone: istiod knew their classes by them.
func (w *World) leave() {
	for _, pod := range w.cluster.pods[:len(w.cluster.pods)/4] {
		w.relayed[pod.name].stop()
		delete(w.relayed, pod.name)
	}
	w.compare("after the first of each class have left")
	client := w.cluster.client().Kube().CoreV1().Pods(namespace)
	for _, pod := range w.cluster.pods[:len(w.cluster.pods)/4] {
		check(client.Delete(context.Background(), pod.name, metav1.DeleteOptions{}))
	}
	w.compare("after their Pods are gone")
}
