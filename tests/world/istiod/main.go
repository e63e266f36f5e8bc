// The shipped configuration for istiod, before the real istiod: its discovery server, with a Kubernetes API in the process that
// istiod and the relay read. Each Pod's proxy is there twice, straight at istiod and behind the relay, and both must have the same bytes.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"istio.io/istio/pkg/log"
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

// failer stands for the test that istiod's own helpers expect.
type failer struct{}

func (failer) Fail()                           { panic("istiod failed") }
func (failer) FailNow()                        { panic("istiod failed") }
func (failer) Fatal(args ...any)               { panic(fmt.Sprint(args...)) }
func (failer) Fatalf(text string, args ...any) { panic(fmt.Sprintf(text, args...)) }
func (failer) Log(...any)                      {}
func (failer) Logf(string, ...any)             {}
func (failer) TempDir() string                 { return must(os.MkdirTemp("", "istiod")) }
func (failer) Helper()                         {}
func (failer) Cleanup(func())                  {}
func (failer) Skip(...any)                     {}

// Relay is the built binary.
type Relay struct {
	address, admin, log string
	process             *exec.Cmd
}

func freePort() string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

// startRelay runs a shipped configuration with the addresses of this world.
func startRelay(binary, config, directory, istiod, api string) *Relay {
	relay := &Relay{address: freePort(), admin: freePort(), log: filepath.Join(directory, "log")}
	text := string(must(os.ReadFile(config)))
	for from, to := range map[string]string{
		"istiod.istio-system.svc:15010": istiod,
		"0.0.0.0:15010":                 relay.address,
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
	text += fmt.Sprintf("\nadmin: { address: %q }\nlinger: 2s\n", relay.admin)
	file := filepath.Join(directory, "sluice.yaml")
	check(os.WriteFile(file, []byte(text), 0o600))
	output := must(os.Create(relay.log))
	relay.process = exec.Command(binary, "serve", "--config", file)
	relay.process.Stderr = output
	check(relay.process.Start())
	for range 200 {
		if answer, err := http.Get("http://" + relay.admin + "/ready"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return relay
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	panic("the relay is not ready: " + string(must(os.ReadFile(relay.log))))
}

func (r *Relay) metric(name string) float64 {
	answer := must(http.Get("http://" + r.admin + "/metrics"))
	defer answer.Body.Close()
	sum, lines := 0.0, bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, name) {
			var value float64
			must(fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value))
			sum += value
		}
	}
	return sum
}

// World is all proxies, each one twice.
type World struct {
	cluster         *Cluster
	relay           *Relay
	direct, relayed map[string]*Proxy
	faults, rows    int
	// The relay has a stream of its own for each proxy.
	alone bool
}

// settleAll waits until no proxy has heard anything for a while, and returns the time of the last word.
func settleAll(sides ...map[string]*Proxy) time.Time {
	last := time.Time{}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(100 * time.Millisecond) {
		for _, side := range sides {
			for _, proxy := range side {
				if since := proxy.quietSince(); since.After(last) {
					last = since
				}
			}
		}
		if time.Since(last) > 2*time.Second && time.Since(start) > 2*time.Second {
			break
		}
	}
	return last
}

func (w *World) fault(text string, args ...any) {
	w.faults++
	fmt.Printf("  FAULT: "+text+"\n", args...)
}

// compare is a row of the matrix.
func (w *World) compare(what string) {
	settleAll(w.direct, w.relayed)
	wrong, shown := 0, 0
	for name, relayed := range w.relayed {
		found := differences(w.direct[name], relayed)
		if len(found) == 0 {
			continue
		}
		wrong++
		if shown < 3 {
			shown++
			fmt.Printf("  %s: %s\n", name, strings.Join(found[:min(3, len(found))], "; "))
		}
	}
	w.faults += wrong
	w.rows++
	fmt.Printf("%-52s %3d proxies, %3d wrong, %3.0f upstream streams\n", what, len(w.relayed), wrong, w.relay.metric("sluice_upstream_streams"))
}

// warnings are the last lines of a log that are no news.
func warnings(file string) string {
	var found []string
	for _, line := range strings.Split(string(must(os.ReadFile(file))), "\n") {
		if !strings.Contains(line, " INFO ") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-30):], "\n")
}

func main() {
	binary := flag.String("sluice", "target/release/sluice", "the relay")
	config := flag.String("config", "config/istio-kubernetes.yaml", "the shipped configuration")
	pods := flag.Int("pods", 200, "Pods with a sidecar")
	streams := flag.Int("streams", 12, "the most upstream streams at rest; 0: any number")
	services := flag.Int("services", 0, "Services besides those of the Pods")
	apart := flag.Bool("apart", false, "listeners have a class for each proxy, by a rule of their own")
	alone := flag.Bool("alone", false, "the relay cannot reach the API of Kubernetes: each proxy is a class")
	isGain := flag.Bool("gain", false, "measure the work of istiod instead")
	isServed := flag.Bool("serve", false, "for --gain: istiod alone")
	flag.Parse()
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel)
	}
	directory := must(os.MkdirTemp("", "world"))
	defer os.RemoveAll(directory)
	switch {
	case *isServed:
		serveWorld(*pods, *services)
	case *isGain:
		gain(*binary, *config, directory, *pods, *services)
	default:
		if *apart {
			*config = withRule(*config, directory)
		}
		if !matrix(*binary, *config, directory, *pods, *services, *streams, *alone, *apart) {
			os.Exit(1)
		}
	}
}

// withRule adds a rule that takes one type apart: two streams of the relay have one proxy's address then, and istiod tells a change of
// labels to one of them (W8).
func withRule(config, directory string) string {
	rule := "node_classes:\n  - match: { types: [envoy.config.listener.v3.Listener] }\n" +
		"    split_by: { id: true, cluster: true, locality: sub_zone, metadata: all, facts: all }\n    upstream_node: member\n"
	text := strings.Replace(string(must(os.ReadFile(config))), "node_classes:\n", rule, 1)
	file := filepath.Join(directory, "apart.yaml")
	check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (r *Relay) end() {
	check(r.process.Process.Signal(syscall.SIGTERM))
	_ = r.process.Wait()
}

// matrix compares all proxies at rest and after each change.
func matrix(binary, config, directory string, pods, services, streams int, alone, apart bool) bool {
	cluster := newCluster(pods, 20, services)
	api := cluster.api.URL
	if alone {
		api = "http://" + freePort()
	}
	relay := startRelay(binary, config, directory, cluster.address(), api)
	defer relay.end()
	world := &World{cluster: cluster, relay: relay, alone: alone || apart}
	world.direct, world.relayed = connectAll(cluster.address(), cluster.pods), connectAll(relay.address, cluster.pods)
	world.run(streams)
	if world.faults > 0 {
		fmt.Printf("the log of the relay:\n%s\n", warnings(relay.log))
	}
	fmt.Printf("world: %d passed, %d failed, 0 skipped\n", world.rows-min(world.rows, world.faults), world.faults)
	return world.faults == 0
}

func (w *World) run(streams int) {
	w.compare("at rest")
	if found := w.relay.metric("sluice_upstream_streams"); streams > 0 && found > float64(streams) {
		w.fault("%.0f upstream streams, at most %d", found, streams)
	}
	for _, push := range w.pushes() {
		push.do()
		w.compare("after " + push.name)
	}
	w.relabel(w.cluster.pods[len(w.cluster.pods)-1], false)
	w.relabel(w.cluster.pods[0], true)
	w.leave()
}

// relabel gives a Pod a label that a policy selects: its proxy has the policy as soon as without the relay, and in the end nobody else
// has it. `known`: istiod knows the Pod's class by this Pod.
func (w *World) relabel(pod *Pod, known bool) {
	has := func(proxy *Proxy) bool {
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		for _, body := range proxy.has[listeners] {
			if strings.Contains(string(body), "deny-v2") {
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
			w.direct[pod.name] = connect(w.cluster.address(), pod)
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
		w.direct[pod.name] = connect(w.cluster.address(), pod)
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
