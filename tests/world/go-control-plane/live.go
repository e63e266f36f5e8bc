package main

import (
	"fmt"
	"net"
	"os"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// compareLive compares nodes at any control plane with the same nodes behind a relay in front of it, in both variants.
func compareLive(direct, relay string, files []string, duration time.Duration) bool {
	for _, address := range []string{direct, relay} {
		check(must(net.DialTimeout("tcp", address, 5*time.Second)).Close())
	}
	var pairs []*Pair
	for _, file := range files {
		node := &core.Node{}
		check(protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(must(os.ReadFile(file)), node))
		for _, isDelta := range []bool{true, false} {
			name := file + map[bool]string{true: " (delta)", false: " (SotW)"}[isDelta]
			pairs = append(pairs, &Pair{
				name: name, node: node, isDelta: isDelta,
				direct: newProxy(direct, node, isDelta), relayed: newProxy(relay, node, isDelta),
			})
		}
	}
	isGood := true
	for start := time.Now(); ; {
		told := settleLive(pairs)
		isGood = tellLive(pairs) && isGood
		for time.Since(start) < duration && !lastHeard(pairs).After(told) {
			time.Sleep(100 * time.Millisecond)
		}
		if time.Since(start) >= duration {
			return isGood
		}
	}
}

func lastHeard(pairs []*Pair) time.Time {
	last := time.Time{}
	for _, pair := range pairs {
		for _, proxy := range []*Proxy{pair.direct, pair.relayed} {
			if heard, _, _ := proxy.heard(); heard.After(last) {
				last = heard
			}
		}
	}
	return last
}

// settleLive waits until nothing has come for a second, or for five where something differs, and returns the time of the last response.
func settleLive(pairs []*Pair) time.Time {
	for {
		time.Sleep(100 * time.Millisecond)
		last, isEqual := lastHeard(pairs), true
		for _, pair := range pairs {
			isEqual = isEqual && len(differences(pair.direct, pair.relayed)) == 0
		}
		if since := time.Since(last); isEqual && since > time.Second || since > 5*time.Second {
			return last
		}
	}
}

func tellLive(pairs []*Pair) bool {
	wrong := 0
	for _, pair := range pairs {
		found, resources := differences(pair.direct, pair.relayed), 0
		has, _ := pair.direct.bodies()
		for _, names := range has {
			resources += len(names)
		}
		if len(found) > 0 {
			wrong++
		}
		fmt.Printf("%-40s %4d resources, %d differences\n", pair.name, resources, len(found))
		for _, difference := range found[:min(3, len(found))] {
			fmt.Printf("    %s\n", difference)
		}
	}
	fmt.Printf("%d proxies, %d wrong\n\n", len(pairs), wrong)
	return wrong == 0
}
