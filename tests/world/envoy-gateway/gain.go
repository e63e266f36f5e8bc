package main

import (
	"fmt"
	"strings"
	"time"

	"sluice.example/tests/world/shared"
)

const (
	proxies = 200
	rounds  = 3
)

// gain measures the work of Envoy Gateway for proxies straight at it, and for proxies behind the relay.
func gain(w *World) {
	w.secured = clientTLS(w.gateway.certificates())
	fmt.Printf("%d proxies of one gateway, by delta; CPU of Envoy Gateway, and of the relay\n", proxies)
	for range rounds {
		w.measure("direct", false)
		w.measure("relayed", true)
	}
}

// settled waits until all proxies have a text, and two seconds more, in which Envoy Gateway ends its work.
func (w *World) settled(all []*Proxy, text string) time.Duration {
	start, last := time.Now(), time.Duration(0)
	for _, proxy := range all {
		for !proxy.contains(text) && time.Since(start) < time.Minute {
			time.Sleep(5 * time.Millisecond)
			last = time.Since(start)
		}
	}
	time.Sleep(2 * time.Second)
	return last
}

// measure plays one side on a fresh Envoy Gateway and a fresh relay. Most of a change is the work of reading the files.
func (w *World) measure(side string, isRelayed bool) {
	w.gateway.start()
	defer func() { w.gateway.stop() }()
	w.relay = startRelay(w.sluice, w.file, w.directory, nil)
	defer func() { w.relay.End() }()
	address := xdsAddress
	if isRelayed {
		address = w.relay.Address
	}
	// The first changes of a fresh process cost more, whoever asks.
	warm := w.connect(xdsAddress, 4)
	w.settled(warm, "10.1.2.1")
	w.changes(warm, 2)
	stopAll(warm)
	time.Sleep(time.Second)
	before, relayBefore := shared.CPU(w.gateway.process), shared.CPU(w.relay.Process)
	all := w.connect(address, proxies)
	w.settled(all, "10.1.2.1")
	connected := shared.CPU(w.gateway.process) - before
	before = shared.CPU(w.gateway.process)
	delays := w.changes(all, 6)
	fmt.Printf("%-8s connecting %5.2f s, six changes %5.2f s, the relay %5.2f s; the last proxy has each change after %s s\n",
		side, connected.Seconds(), (shared.CPU(w.gateway.process) - before).Seconds(), (shared.CPU(w.relay.Process) - relayBefore).Seconds(), delays)
	stopAll(all)
}

func (w *World) connect(address string, count int) []*Proxy {
	var all []*Proxy
	for _, named := range members("shop", count) {
		all = append(all, newProxy(address, w.secured, named.node, true))
	}
	return all
}

// changes are changes of a backend and of a route in turn. The last proxy has each after a time.
func (w *World) changes(all []*Proxy, count int) string {
	var delays []string
	for range count {
		w.changed++
		text := fmt.Sprintf("10.9.%d.1", w.changed)
		if w.changed%2 == 0 {
			w.resources.putBackend("shop-0", text)
		} else {
			text = fmt.Sprintf("gain-%d.shop.example", w.changed)
			w.resources.put("route-gain", fmt.Sprintf(routeObject, fmt.Sprintf("gain-%d", w.changed), "shop", "shop-1"))
		}
		delays = append(delays, fmt.Sprintf("%.2f", w.settled(all, text).Seconds()))
	}
	return strings.Join(delays, ", ")
}

func stopAll(all []*Proxy) {
	for _, proxy := range all {
		proxy.stop()
	}
}
