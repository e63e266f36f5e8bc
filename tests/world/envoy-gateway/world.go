package main

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"sluice.example/tests/world/shared"
)

// Twin is one node three times: straight at Envoy Gateway by delta, as its Envoys are, and behind the relay in each variant. Both
// variants at one Envoy Gateway v1.9.1 would end it: it numbers their streams apart, and keeps the nodes of both by the number.
type Twin struct {
	name    string
	node    *core.Node
	direct  *Proxy
	relayed [2]*Proxy
}

var variants = [2]string{"delta", "SotW"}

// World is one Envoy Gateway, one relay and all proxies.
type World struct {
	sluice, file, directory string
	resources               *Resources
	gateway                 *Gateway
	relay                   *shared.Relay
	secured                 *tls.Config
	twins                   []*Twin
	passed, failed          int
	// Texts that the proxies of a gateway must have by now, or must not have any more: Envoy Gateway takes a moment for each change.
	has, lacks map[string]string
	// The changes of a measurement so far.
	changed int
}

const (
	// No proxy hears anything for this time, and all have what they must have.
	quiet = 500 * time.Millisecond
	// No proxy hears anything for this time, and some lack something: they will not get it.
	silent = 5 * time.Second
)

// connectAll connects each node.
func (w *World) connectAll() {
	for _, named := range nodes() {
		twin := &Twin{name: named.name, node: named.node}
		w.twins = append(w.twins, twin)
		twin.direct = newProxy(xdsAddress, w.secured, twin.node, true)
		w.connectRelayed(twin, w.relay)
	}
}

func (w *World) connectRelayed(twin *Twin, relay *shared.Relay) {
	for variant := range variants {
		twin.relayed[variant] = newProxy(relay.Address, w.secured, twin.node, variant == 0)
	}
}

// isBehind tells whether a direct proxy does not show yet what was changed.
func (w *World) isBehind(twin *Twin) bool {
	gateway := strings.TrimPrefix(twin.node.GetCluster(), "default/")
	if text, isThere := w.has[gateway]; isThere && !twin.direct.contains(text) {
		return true
	}
	text, isThere := w.lacks[gateway]
	return isThere && twin.direct.contains(text)
}

// settle waits until the direct proxies show the change, however long Envoy Gateway takes, and then until all proxies have the same as
// their twins, or nothing more comes.
func (w *World) settle() {
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		last, isShown := w.lastHeard(), true
		if begin := start.Add(-quiet / 2); last.Before(begin) {
			last = begin
		}
		for _, twin := range w.twins {
			isShown = isShown && !w.isBehind(twin)
		}
		if since := time.Since(last); isShown && (since > silent || since > quiet && w.isEqual()) {
			return
		}
	}
}

// row is a line of the result.
func (w *World) row(isGood bool, text string, values ...any) {
	verdict := ""
	if isGood {
		w.passed++
	} else {
		w.failed++
		verdict = "   FAULT"
	}
	fmt.Printf(text+verdict+"\n", values...)
}

// wrong is the number of relayed proxies that have something else than their twins. The first ones are shown.
func (w *World) wrong(isShown bool) int {
	wrong := 0
	for _, twin := range w.twins {
		for variant, relayed := range twin.relayed {
			found := differences(twin.direct, relayed)
			if w.isBehind(twin) {
				found = append(found, "not even without the relay as it should be")
			}
			if len(found) == 0 {
				continue
			}
			wrong++
			if isShown && wrong <= 3 {
				fmt.Printf("  %s (%s): %s\n", twin.name, variants[variant], strings.Join(found[:min(3, len(found))], "; "))
			}
		}
	}
	return wrong
}

// compare is a row of the matrix.
func (w *World) compare(what string) {
	w.settle()
	wrong := w.wrong(true)
	w.waitForStreams(w.classes())
	streams := w.relay.Streams()
	w.row(wrong == 0 && streams == w.classes(), "%-58s %3d proxies, %3d wrong, %2d upstream streams", "after "+what, len(w.twins)*len(variants), wrong, streams)
}

func (w *World) waitForStreams(count int) {
	for range 200 {
		if w.relay.Streams() == count {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// classes is the number of upstream streams that the rule makes.
func (w *World) classes() int {
	found := map[string]bool{}
	for _, twin := range w.twins {
		found[classOf(twin.node)] = true
	}
	return len(found)
}

// clusters is the number of different `node.cluster`.
func (w *World) clusters() int {
	found := map[string]bool{}
	for _, twin := range w.twins {
		found[twin.node.GetCluster()] = true
	}
	return len(found)
}

// heard are all responses that the relayed proxies had, those that changed nothing, and removals.
func (w *World) heard() [3]int {
	var sum [3]int
	for _, twin := range w.twins {
		for _, relayed := range twin.relayed {
			_, counts := relayed.heard()
			for number, count := range counts {
				sum[number] += count
			}
		}
	}
	return sum
}

// run plays all steps.
func (w *World) run() {
	w.secured = clientTLS(w.gateway.certificates())
	w.gateway.start()
	defer func() { w.gateway.stop() }()
	w.relay = startRelay(w.sluice, w.file, w.directory, nil)
	defer func() { w.relay.End() }()
	w.connectAll()
	w.has = map[string]string{"shop": "10.1.0.1", "api": "10.2.0.1"}
	w.compare("the start")
	fmt.Printf("  the streams: one for each of %d clusters, the others for other features and for dynamic parameters\n", w.clusters())
	w.content()
	w.strangers()
	for _, step := range steps() {
		w.play1(step)
	}
	w.known()
	w.rejections()
	w.leave()
	w.restart()
	if w.failed > 0 {
		fmt.Printf("the log of the relay:\n%s\n", w.relay.Warnings())
		fmt.Printf("the log of Envoy Gateway:\n%s\n", w.gateway.warnings())
	}
	w.counterProof()
	w.endAll()
}

func (w *World) play1(step Step) {
	w.has, w.lacks = step.has, step.lacks
	step.change(w.resources)
	w.compare(step.name)
}

// content is a row: the first proxy has something of each type, and the nodes have the clusters that Envoy Gateway gives its own Envoys.
func (w *World) content() {
	own := w.gateway.clusters()
	all, _ := w.twins[0].relayed[0].bodies()
	var counts []string
	isWhole := own["default/shop"] && own["default/api"]
	for _, kind := range []string{clusters, endpoints, listeners, routes, secrets} {
		isWhole = isWhole && len(all[kind]) > 0
		counts = append(counts, fmt.Sprintf("%d %s", len(all[kind]), kind[strings.LastIndex(kind, ".")+1:]))
	}
	w.row(isWhole, "%-58s %s; Envoy Gateway's own Envoys state %v", "  the first proxy has", strings.Join(counts, ", "), own)
}

// known is a row: Envoy Gateway has seen the relay's classes with a gateway, and no other nodes of the relay.
func (w *World) known() {
	seen := 0
	for name := range metrics(metricsURL, "xds_snapshot_update_total{") {
		if strings.Contains(name, `nodeID="relay/`) {
			seen++
		}
	}
	expected := w.classes() - 1
	w.row(seen == expected, "%-58s %d nodes, and %d proxies as themselves", "  Envoy Gateway knows the relay as", seen, len(w.twins)-1)
}

// leave ends the first half of each class: Envoy Gateway knew the classes by some of them.
func (w *World) leave() {
	members := map[string][]*Twin{}
	for _, twin := range w.twins {
		members[classOf(twin.node)] = append(members[classOf(twin.node)], twin)
	}
	for _, class := range members {
		for _, twin := range class[:len(class)/2] {
			twin.end()
			w.twins = slices.DeleteFunc(w.twins, func(one *Twin) bool { return one == twin })
		}
	}
	w.play1(burst("half of each class has left during 20 changes", 40))
	w.play1(steps()[0])
}

// kept is a row: the relayed proxies lose nothing while something happens, and hear of changes only.
func (w *World) kept(what string, happen func()) {
	before := w.heard()
	happen()
	w.compare(what)
	after := w.heard()
	responses, idle, removals := after[0]-before[0], after[1]-before[1], after[2]-before[2]
	w.row(idle == 0 && removals == 0, "%-58s %3d responses at relayed proxies, %d of them without a change, %d removals",
		"  meanwhile", responses, idle, removals)
}

// restart kills Envoy Gateway and starts it again: once with the same resources, and once with others. It encodes the fields of access
// logs in another order each time, so that listeners are sent anew, with and without the relay.
func (w *World) restart() {
	w.kept("a restart of Envoy Gateway", func() {
		w.away(func() { w.newcomer() })
		w.back()
	})
	w.kept("a restart with a changed backend and a new route", func() {
		w.away(func() {
			w.resources.putBackend("shop-0", "10.1.0.88")
			w.resources.putRoute("shop-restart", "shop", "shop-0")
			w.has = map[string]string{"shop": "shop-restart.shop.example"}
		})
		w.back()
	})
}

// away ends Envoy Gateway, lets something happen, and ends the direct proxies.
func (w *World) away(happen func()) {
	w.gateway.stop()
	for _, twin := range w.twins {
		twin.direct.stop()
	}
	w.waitForStreams(0)
	happen()
}

// back starts Envoy Gateway, and connects the direct proxies again once the relay is there.
func (w *World) back() {
	w.gateway.start()
	for _, twin := range w.twins {
		twin.direct = newProxy(xdsAddress, w.secured, twin.node, true)
	}
	w.waitForStreams(w.classes())
}

// newcomer is a proxy that connects while Envoy Gateway is away. Its class is known.
func (w *World) newcomer() {
	former := w.twins[0].relayed[0]
	proxy := newProxy(w.relay.Address, w.secured, former.node, true)
	defer proxy.stop()
	start := time.Now()
	for len(differences(proxy, former)) > 0 && time.Since(start) < 5*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	isWhole := len(differences(proxy, former)) == 0
	w.row(isWhole, "%-58s has all after %v", "a newcomer while Envoy Gateway is away", time.Since(start).Round(time.Millisecond))
}

// counterProof shows that the comparison finds a rule that is too coarse.
func (w *World) counterProof() {
	relay := startRelay(w.sluice, w.file, w.directory, func(text string) string { return withRules(text, "  - split_by: {}") })
	defer relay.End()
	// A relay waits for its clients when it ends.
	defer w.endAll()
	for _, twin := range w.twins {
		twin.end()
		twin.direct = newProxy(xdsAddress, w.secured, twin.node, true)
		w.connectRelayed(twin, relay)
	}
	w.settle()
	wrong := w.wrong(false)
	w.row(wrong > 0, "%-58s %3d proxies, %3d wrong, %2d upstream streams", "(counter-proof) with split_by: {}", len(w.twins)*len(variants), wrong, relay.Streams())
}

func (w *World) endAll() {
	for _, twin := range w.twins {
		twin.end()
	}
}

func (t *Twin) end() {
	t.direct.stop()
	for _, relayed := range t.relayed {
		relayed.stop()
	}
}
