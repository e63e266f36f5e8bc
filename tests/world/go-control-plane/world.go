package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"sluice.example/tests/world/shared"
)

// Pair is one node twice: straight at the control plane, and behind the relay.
type Pair struct {
	name            string
	node            *core.Node
	isDelta         bool
	direct, relayed *Proxy
}

// World is one control plane, one relay and all proxies.
type World struct {
	of             *Case
	plane          *Plane
	relay          *shared.Relay
	all            []Named
	pairs          []*Pair
	passed, failed int
	// Worlds run at the same time, and each is printed as a whole.
	output strings.Builder
}

func (w *World) printf(text string, values ...any) {
	fmt.Fprintf(&w.output, text, values...)
}

const (
	// No proxy hears anything for this time, and all have what they must have.
	quiet = 250 * time.Millisecond
	// No proxy hears anything for this time, and some lack something: they will not get it.
	silent = 5 * time.Second
)

// connectAll connects each node in both variants. `asks` are subscriptions besides clusters and listeners.
func (w *World) connectAll() {
	for number := range w.all {
		for _, isDelta := range []bool{true, false} {
			named := w.all[number]
			name := named.name + map[bool]string{true: " (delta)", false: " (SotW)"}[isDelta]
			pair := &Pair{name: name, node: named.node, isDelta: isDelta}
			pair.direct = newProxy(w.plane.address, named.node, isDelta, asks...)
			pair.relayed = newProxy(w.relay.Address, named.node, isDelta, asks...)
			w.pairs = append(w.pairs, pair)
		}
	}
}

var asks = []ask{{runtimes, []string{layer}}}

// isBehind tells whether a proxy lacks a part of its truth, which includes Secrets if the proxy asks for them.
func isBehind(proxy *Proxy, truth shared.Contents) bool {
	has, err := proxy.bodies()
	if err != nil {
		return true
	}
	if !proxy.hasAsked(secrets) {
		truth = maps.Clone(truth)
		delete(truth, secrets)
	}
	return len(shared.Compare(truth, has)) > 0
}

// settle waits until all proxies have the same as their twins and as the control plane, or until nothing more comes.
func (w *World) settle() {
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(25 * time.Millisecond) {
		last, isDone := start.Add(-quiet/2), true
		for _, pair := range w.pairs {
			for _, proxy := range []*Proxy{pair.direct, pair.relayed} {
				if heard, _, _ := proxy.heard(); heard.After(last) {
					last = heard
				}
			}
			isDone = isDone && !isBehind(pair.direct, w.plane.truth(pair.node)) && len(differences(pair.direct, pair.relayed)) == 0
		}
		if since := time.Since(last); isDone && since > quiet || since > silent {
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
	w.printf(text+verdict+"\n", values...)
}

// wrong is the number of proxies that have something else than their twins. The first ones are shown.
func (w *World) wrong(isShown bool) int {
	wrong := 0
	for _, pair := range w.pairs {
		found := differences(pair.direct, pair.relayed)
		if isBehind(pair.direct, w.plane.truth(pair.node)) {
			found = append(found, "not even without the relay as in the snapshot")
		}
		if len(found) == 0 {
			continue
		}
		wrong++
		if isShown && wrong <= 3 {
			w.printf("  %s: %s\n", pair.name, strings.Join(found[:min(3, len(found))], "; "))
		}
	}
	return wrong
}

// compare is a row of the matrix. The control plane must see as many streams as the relay tells, and as the case allows.
func (w *World) compare(what string) {
	w.settle()
	wrong := w.wrong(true)
	streams, seen := 0, 0
	for range 160 {
		streams, seen = w.relay.Streams(), int(w.plane.open.Load())-len(w.pairs)
		if streams == seen && streams <= w.streams() {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.row(wrong == 0 && streams == seen && streams == w.streams(),
		"%-52s %3d proxies, %3d wrong, %3d upstream streams", "after "+what, len(w.pairs), wrong, streams)
	if streams != seen || streams != w.streams() {
		w.printf("  the control plane sees %d streams of the relay, and %d are expected\n", seen, w.streams())
	}
}

// streams is the number of classes, and of ids that ask for Secrets, if these are not shared and not the classes' own.
func (w *World) streams() int {
	classes := map[string]bool{}
	for _, pair := range w.pairs {
		class := w.of.classOf(pair.node)
		classes[class] = true
		if pair.relayed.hasAsked(secrets) && !w.of.sharesSecrets && !w.isSplitByID() {
			classes[class+" secrets of "+pair.node.GetId()] = true
		}
	}
	return len(classes)
}

func (w *World) isSplitByID() bool {
	return w.of.name == "any" || w.of.name == "id"
}

// messages are all responses and removals that the relayed proxies had.
func (w *World) messages() (int, int) {
	messages, removals := 0, 0
	for _, pair := range w.pairs {
		_, some, gone := pair.relayed.heard()
		messages, removals = messages+some, removals+gone
	}
	return messages, removals
}

// untouched is a row: the relayed proxies hear nothing while something happens.
func (w *World) untouched(what string, happen func()) {
	messages, removals := w.messages()
	happen()
	w.compare(what)
	again, gone := w.messages()
	w.row(again == messages, "%-52s %3d responses, %d removals at relayed proxies", "  meanwhile", again-messages, gone-removals)
}

// run plays all steps.
func (w *World) run(binary, file, directory string) {
	labels := w.labels()
	late := labels[len(labels)-1]
	if len(labels) > 1 {
		w.plane.setLate(late)
	}
	w.plane.start(true)
	w.relay = startRelay(binary, file, directory, w.of, w.plane.address, "")
	defer func() { w.relay.End() }()
	defer w.plane.stop()
	w.connectAll()
	w.compare("the start")
	for _, push := range pushes() {
		w.plane.push(everyone, push.change)
		w.compare(push.name)
	}
	if len(labels) > 1 {
		w.plane.push(labels[0], pushNumber(2))
		w.compare("a snapshot of one key")
		w.plane.setLate("none")
		w.compare("the first snapshot of a key")
	}
	for number := range 20 {
		w.plane.push(everyone, pushNumber(number))
	}
	w.compare("a burst of 20 pushes")
	w.untouched("a new version of the same", func() { w.plane.push(everyone, func(c Content, _ string) { c.copyAll() }) })
	w.rejections()
	w.secrets()
	w.leave()
	w.restart()
	if w.failed > 0 {
		w.printf("the log of the relay:\n%s\n", w.relay.Warnings())
	}
	w.counterProof(binary, file, directory)
	w.endAll()
}

// labels are the contents, first that of the first node.
func (w *World) labels() []string {
	var found []string
	for _, named := range w.all {
		w.plane.learn(named.node)
		if w.of.hasClusterKeys {
			w.plane.learn(&core.Node{Id: named.node.GetCluster(), Cluster: named.node.GetCluster()})
		}
		if label := w.of.labelOf(named.node); !slices.Contains(found, label) {
			found = append(found, label)
		}
	}
	return found
}

// secrets lets a third of the proxies ask for a Secret.
func (w *World) secrets() {
	for number, pair := range w.pairs {
		if number%3 != 0 {
			continue
		}
		for _, proxy := range []*Proxy{pair.direct, pair.relayed} {
			proxy.asks <- ask{secrets, []string{cert}}
			for !proxy.hasAsked(secrets) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	w.compare("a Secret is asked for by a third")
	w.plane.push(everyone, func(c Content, label string) { c.putSecret("second of " + label) })
	w.compare("another Secret")
}

// leave ends the first half of each class: the control plane knew the classes by some of them.
func (w *World) leave() {
	members := map[string][]*Pair{}
	for _, pair := range w.pairs {
		class := w.of.classOf(pair.node)
		members[class] = append(members[class], pair)
	}
	for _, class := range members {
		for _, pair := range class[:len(class)/2] {
			pair.direct.stop()
			pair.relayed.stop()
			w.pairs = slices.DeleteFunc(w.pairs, func(one *Pair) bool { return one == pair })
		}
	}
	// The relay shows the control plane another member within a second, and no push may be lost meanwhile.
	for number := range 60 {
		w.plane.push(everyone, pushNumber(number))
		time.Sleep(20 * time.Millisecond)
	}
	w.compare("half of each class has left during pushes")
	w.plane.push(everyone, pushNumber(1))
	w.compare("a push to the others")
}

// restart stops the control plane and starts it again: once with the same content, and once with another. Versions begin anew.
func (w *World) restart() {
	w.untouched("a restart of the control plane", func() {
		w.away(func() { w.newcomer() })
		w.plane.start(true)
		w.back()
	})
	_, removals := w.messages()
	w.away(func() { w.plane.change(everyone, func(c Content, label string) { c.putCluster("later", label, 3) }) })
	if w.of.isLinear {
		// A LinearCache without resources answers that there are none: it has to be filled first.
		w.plane.start(true)
	} else {
		w.plane.start(false)
		w.waitForStreams(w.streams())
		w.plane.fill()
	}
	w.back()
	w.compare("a restart with a change")
	_, gone := w.messages()
	w.row(gone == removals, "%-52s %3d removals at relayed proxies", "  meanwhile", gone-removals)
}

// away ends the control plane, lets something happen, and ends the direct proxies.
func (w *World) away(happen func()) {
	w.plane.stop()
	for _, pair := range w.pairs {
		pair.direct.stop()
	}
	w.waitForStreams(0)
	happen()
}

// back connects the direct proxies again, once the relay is there.
func (w *World) back() {
	for _, pair := range w.pairs {
		pair.direct = newProxy(w.plane.address, pair.node, pair.isDelta, pair.asks()...)
	}
	w.waitForStreams(w.streams())
}

// asks are those of the relayed proxy.
func (p *Pair) asks() []ask {
	if p.relayed.hasAsked(secrets) {
		return append([]ask{{secrets, []string{cert}}}, asks...)
	}
	return asks
}

func (w *World) waitForStreams(count int) {
	for range 400 {
		if w.relay.Streams() == count {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.row(false, "the relay has %d upstream streams, not %d", w.relay.Streams(), count)
}

// newcomer is a proxy that connects while the control plane is away. Its class is known.
func (w *World) newcomer() {
	pair := w.pairs[0]
	proxy := newProxy(w.relay.Address, pair.node, pair.isDelta, asks...)
	defer proxy.stop()
	start, truth := time.Now(), w.plane.truth(pair.node)
	for isBehind(proxy, truth) && time.Since(start) < 5*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	taken := time.Since(start).Round(time.Millisecond)
	w.row(!isBehind(proxy, truth), "%-52s waits %v for its resources", "a newcomer while the control plane is away", taken)
}

// counterProof shows that the comparison finds a rule that is too coarse.
func (w *World) counterProof(binary, file, directory string) {
	if w.of.coarse == "" {
		return
	}
	relay := startRelay(binary, file, directory, w.of, w.plane.address, w.of.coarse)
	defer relay.End()
	// A relay waits for its clients when it ends.
	defer w.endAll()
	for _, pair := range w.pairs {
		pair.relayed.stop()
		pair.relayed = newProxy(relay.Address, pair.node, pair.isDelta, pair.asks()...)
	}
	w.settle()
	wrong := w.wrong(false)
	w.row(wrong > 0, "%-52s %3d proxies, %3d wrong, %3d upstream streams", "(counter-proof) with "+w.of.coarse, len(w.pairs), wrong, relay.Streams())
	// Without ids of their own, all proxies have the id of the one that the control plane sees, which nobody is shown twice.
	if w.of.hasOwnIDs && strings.Contains(w.of.coarse, "upstream_node: member") {
		w.findsOut(relay)
	}
}

// findsOut waits until the relay itself tells that the rule is too coarse, with a client of whom that is true.
func (w *World) findsOut(relay *shared.Relay) {
	start := time.Now()
	for time.Since(start) < time.Minute {
		var answer struct {
			Divergences []struct{ Type, Name, Member string }
		}
		got := must(http.Get("http://" + relay.Admin + "/classes/divergences"))
		check(json.NewDecoder(got.Body).Decode(&answer))
		got.Body.Close()
		if len(answer.Divergences) > 0 {
			first := answer.Divergences[0]
			w.row(true, "%-52s after %.0f s: %s of %s", "  the relay itself finds out", time.Since(start).Seconds(), first.Name, first.Member)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	w.row(false, "the relay does not find out that the rule is too coarse")
	got := must(http.Get("http://" + relay.Admin + "/classes"))
	defer got.Body.Close()
	w.printf("%s\n", must(io.ReadAll(got.Body)))
}

func (w *World) endAll() {
	for _, pair := range w.pairs {
		pair.direct.stop()
		pair.relayed.stop()
	}
}
