package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice.example/tests/world/shared"
)

// coarseRules are rules that are too coarse for any mesh with zones.
//
//go:embed coarse.yaml
var coarseRules string

// withProof has the relay prove its classes, at a pace at which every proxy has its turn within a minute.
func withProof(text string) string {
	return text + "\nproof: { policy: warn, streams: 8, per_minute: 600 }\n"
}

// Divergence is a resource of which istiod tells a proxy otherwise than its class, as the relay found out.
type Divergence struct {
	Kind           string `json:"type"`
	Name           string
	Class          string
	Paths          []string
	ExplainedBy    []string `json:"explained_by"`
	Member         string
	Representative string
	ClassHas       bool `json:"class_has"`
	MemberHas      bool `json:"member_has"`
}

func (d *Divergence) String() string {
	return fmt.Sprintf("%s %q: %s is told otherwise than %s, in %v; explained by %v",
		kindName(d.Kind), d.Name, d.Member, d.Representative, d.Paths, d.ExplainedBy)
}

func kindName(kind string) string { return strings.TrimPrefix(kind, prefix) }

// Class is what the relay knows of a class, with its proof.
type Class struct {
	Digest  string `json:"class"`
	Clients int
	Proof   *ClassProof
}

// ClassProof is the evidence for a class, and the bounds within which the relay promises to find more.
type ClassProof struct {
	State, Words   string
	Members        int
	Fingerprints   int
	Samples        int
	SampledMembers int `json:"sampled_members"`
	Differs        int
	Restless       []struct {
		Kind  string `json:"type"`
		Names []string
	}
	Impossible    *string
	CoveredWithin float64 `json:"covered_within_seconds"`
	Round         float64 `json:"round_seconds"`
}

// ask reads an answer of the relay's admin listener.
func ask(relay *shared.Relay, path string, answer any) {
	got := must(http.Get("http://" + relay.Admin + path))
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%s: %s", path, got.Status))
	}
	check(json.NewDecoder(got.Body).Decode(answer))
}

func (w *World) divergences() []*Divergence {
	var answer struct {
		Divergences []*Divergence
		Next        *string
	}
	ask(w.relay, "/classes/divergences?limit=1000", &answer)
	if answer.Next != nil {
		panic("more than a thousand divergences")
	}
	return answer.Divergences
}

func (w *World) classes() []*Class {
	var answer struct{ Classes []*Class }
	ask(w.relay, "/classes?limit=1000", &answer)
	return answer.Classes
}

// bound is the time within which the relay promises that every client has had its turn, and that what it found is confirmed.
func (w *World) bound() time.Duration {
	longest := 0.0
	for _, class := range w.classes() {
		if class.Proof != nil {
			longest = max(longest, class.Proof.Round+class.Proof.CoveredWithin)
		}
	}
	return time.Duration(longest * float64(time.Second))
}

// podOf is the Pod of a node: the id is TYPE~IP~NAME.NAMESPACE~DOMAIN.
func (w *World) podOf(node string) *Pod {
	for _, pod := range w.pods {
		if parts := strings.Split(node, "~"); len(parts) == 4 && parts[2] == pod.name+"."+pod.namespace {
			return pod
		}
	}
	return nil
}

// isTrue tells whether istiod, asked straight, tells the two proxies two things.
func (w *World) isTrue(divergence *Divergence) bool {
	member, representative := w.podOf(divergence.Member), w.podOf(divergence.Representative)
	if member == nil || representative == nil {
		return false
	}
	kind := prefix + kindName(divergence.Kind)
	resource := func(pod *Pod) (shared.Resource, bool) {
		proxy := w.direct[pod.name]
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		resource, isHeld := proxy.has[kind][divergence.Name]
		return resource, isHeld
	}
	one, memberHas := resource(member)
	other, classHas := resource(representative)
	return memberHas == divergence.MemberHas && classHas == divergence.ClassHas && !(memberHas && classHas && one.Equals(other))
}

// tooCoarse fails unless the relay finds, within its own bounds, each resource that some proxies have otherwise than without the relay, and
// nothing else; and the field by which they differ.
func (w *World) tooCoarse(*Options) {
	// By workload, since each has a class: the resources that its proxies have otherwise.
	expected := map[string]bool{}
	wrong := w.different()
	for name := range wrong {
		direct, relayed := w.direct[name], w.relayed[name]
		for _, differs := range differences(direct, relayed) {
			expected[direct.pod.workload+": "+differs] = true
		}
	}
	w.row("at rest, with rules that are too coarse", len(wrong))
	if len(expected) == 0 {
		w.fault("the rules are right for this world")
	}
	bound := w.bound()
	start := time.Now()
	told, after := map[string]*Divergence{}, map[string]time.Duration{}
	isMissing := func() bool {
		for key := range expected {
			if told[key] == nil {
				return true
			}
		}
		return false
	}
	for isMissing() && time.Since(start) < bound {
		time.Sleep(100 * time.Millisecond)
		for _, divergence := range w.divergences() {
			what := "differs"
			if !divergence.ClassHas {
				what = "is missing"
			} else if !divergence.MemberHas {
				what = "is too much"
			}
			pod := w.podOf(divergence.Member)
			if pod == nil {
				w.fault("%s: there is no such proxy", divergence)
				return
			}
			key := fmt.Sprintf("%s: %s %s %s", pod.workload, kindName(divergence.Kind), divergence.Name, what)
			if told[key] == nil {
				told[key], after[key] = divergence, time.Since(start).Round(100*time.Millisecond)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(told)) {
		divergence := told[key]
		fmt.Printf("  after %5.1f s: %s\n", after[key].Seconds(), divergence)
		if !w.isTrue(divergence) {
			w.fault("istiod tells the two the same")
		}
		if len(divergence.Paths) == 0 {
			w.fault("no path of a field is told")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if told[key] == nil {
			w.fault("%s: not found within %.0f s, the relay's bound", key, bound.Seconds())
		} else if !slices.Contains(told[key].ExplainedBy, "metadata.NODE_NAME") {
			w.fault("%s: the zone is that of the Node, which explains it, and not %v", key, told[key].ExplainedBy)
		}
	}
	fmt.Printf("  %d of %d resources found, of a bound of %.0f s\n", len(told), len(expected), bound.Seconds())
}

// proved fails if the relay finds a difference under rules that are right for this world, or has no evidence that there is none: neither
// while pushes go on, nor once they are over.
func (w *World) proved(*Options) {
	w.compare("at rest")
	w.awaitTurns()
	for _, push := range w.pushes() {
		w.push(push)
	}
	w.awaitTurns()
	for _, divergence := range w.divergences() {
		w.fault("a false alarm: %s", divergence)
	}
	samples, several := 0, 0
	for _, class := range w.classes() {
		proof := class.Proof
		if proof == nil {
			w.fault("class %s has no proof", class.Digest)
			continue
		}
		samples += proof.Samples
		if proof.Impossible != nil || len(proof.Restless) > 0 || proof.Differs > 0 {
			w.fault("class %s: %s: %s", class.Digest, proof.State, proof.Words)
		}
		if class.Clients > 1 {
			several++
			fmt.Printf("  class %s: %s: %s\n", class.Digest, proof.State, proof.Words)
			// The proxy that istiod knows the class by is no sample.
			if proof.State != "proved" || proof.SampledMembers < class.Clients-1 {
				w.fault("class %s is %s", class.Digest, proof.State)
			}
		}
	}
	w.row(fmt.Sprintf("proved: %d classes of several proxies, %d samples", several, samples), 0)
}

// awaitTurns waits until every proxy has had its turn, and what was found is confirmed.
func (w *World) awaitTurns() { time.Sleep(w.bound()) }
