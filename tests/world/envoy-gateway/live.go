package main

import (
	"fmt"
	"net"
	"os"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"sluice.example/tests/world/shared"
)

// compareLive compares nodes at any Envoy Gateway with the same nodes behind a relay in front of it.
func compareLive(direct, relay, certificates string, files []string, duration time.Duration) bool {
	if len(files) == 0 {
		fmt.Fprintln(os.Stderr, "--direct needs files of nodes")
		return false
	}
	w := &World{secured: clientTLS(certificates), relay: &shared.Relay{Address: relay}}
	for _, address := range []string{direct, relay} {
		check(must(net.DialTimeout("tcp", address, 5*time.Second)).Close())
	}
	for _, file := range files {
		twin := &Twin{name: file, node: &core.Node{}}
		check(protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(must(os.ReadFile(file)), twin.node))
		twin.direct = newProxy(direct, w.secured, twin.node, true)
		w.connectRelayed(twin, w.relay)
		w.twins = append(w.twins, twin)
	}
	isGood := true
	for start := time.Now(); ; {
		told := w.settleLive()
		isGood = w.tellLive() && isGood
		for time.Since(start) < duration && !w.lastHeard().After(told) {
			time.Sleep(100 * time.Millisecond)
		}
		if time.Since(start) >= duration {
			return isGood
		}
	}
}

// lastHeard is the time of the last response at any proxy.
func (w *World) lastHeard() time.Time {
	last := time.Time{}
	for _, twin := range w.twins {
		for _, proxy := range []*Proxy{twin.direct, twin.relayed[0], twin.relayed[1]} {
			if heard, _ := proxy.heard(); heard.After(last) {
				last = heard
			}
		}
	}
	return last
}

// isEqual tells whether all relayed proxies have the same as their twins.
func (w *World) isEqual() bool {
	for _, twin := range w.twins {
		for _, relayed := range twin.relayed {
			if len(differences(twin.direct, relayed)) > 0 {
				return false
			}
		}
	}
	return true
}

// settleLive waits until nothing has come for a second, or for five where something differs, and returns the time of the last response.
func (w *World) settleLive() time.Time {
	for {
		time.Sleep(100 * time.Millisecond)
		last := w.lastHeard()
		if since := time.Since(last); since > 5*time.Second || since > time.Second && w.isEqual() {
			return last
		}
	}
}

func (w *World) tellLive() bool {
	isGood := true
	for _, twin := range w.twins {
		resources := 0
		has, _ := twin.direct.bodies()
		for _, names := range has {
			resources += len(names)
		}
		for variant, relayed := range twin.relayed {
			found := differences(twin.direct, relayed)
			isGood = isGood && resources > 0 && len(found) == 0
			fmt.Printf("%-40s %-5s %4d resources, %d differences\n", twin.name, variants[variant], resources, len(found))
			for _, difference := range found[:min(3, len(found))] {
				fmt.Printf("    %s\n", difference)
			}
		}
	}
	fmt.Println(map[bool]string{true: "all equal", false: "something differs, or a node has nothing"}[isGood])
	return isGood
}
