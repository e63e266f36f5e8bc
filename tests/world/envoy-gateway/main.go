// The shipped configuration for Envoy Gateway, before the real program: its binary with resources from files and certificates of
// its own making. Each proxy is there twice, straight at Envoy Gateway and behind the relay, and both must have the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
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

func main() {
	sluice := flag.String("sluice", "target/release/sluice", "the relay")
	gateway := flag.String("gateway", "target/world/gateway", "Envoy Gateway")
	file := flag.String("config", "config/envoy-gateway.yaml", "the shipped configuration")
	isGain := flag.Bool("gain", false, "measure the work of Envoy Gateway instead")
	isHere := flag.Bool("host-network", false, "use the network of this host, where Envoy Gateway listens on all addresses")
	direct := flag.String("direct", "", "compare nodes at this Envoy Gateway with the same nodes at --relay; the arguments are files of nodes in JSON")
	relay := flag.String("relay", "127.0.0.1:18000", "for --direct: the relay")
	certificates := flag.String("certs", "certs/envoy", "for --direct: the directory of the Secret `envoy`, with tls.crt, tls.key and ca.crt")
	duration := flag.Duration("for", 0, "for --direct: compare again after each change, for this time")
	flag.Parse()
	if *direct != "" {
		if !compareLive(*direct, *relay, *certificates, flag.Args(), *duration) {
			os.Exit(1)
		}
		return
	}
	if !*isHere {
		enterNetwork()
	}
	for _, binary := range []string{*sluice, *gateway} {
		if _, err := os.Stat(binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if !try(*sluice, *gateway, *file, *isGain) {
		os.Exit(1)
	}
}

// try makes a world in a directory of its own, and plays it or measures in it.
func try(sluice, gateway, file string, isGain bool) bool {
	directory := must(os.MkdirTemp("", "world"))
	defer os.RemoveAll(directory)
	w := &World{sluice: sluice, file: file, directory: directory, resources: newResources(filepath.Join(directory, "resources"))}
	w.gateway = newGateway(gateway, directory)
	if isGain {
		gain(w)
		return true
	}
	return w.play()
}

// play runs all steps and prints the result.
func (w *World) play() bool {
	start := time.Now()
	w.run()
	fmt.Printf("    %.0f s\n", time.Since(start).Seconds())
	fmt.Printf("world: %d passed, %d failed, 0 skipped\n", w.passed, w.failed)
	return w.failed == 0
}
