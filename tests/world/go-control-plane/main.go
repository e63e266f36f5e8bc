// The shipped configuration for go-control-plane, before the real library: its server and caches under each NodeHash that people
// write. Each proxy is there twice, straight at the control plane and behind the relay, and both must have the same bytes.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
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
	binary := flag.String("sluice", "target/release/sluice", "the relay")
	file := flag.String("config", "config/go-control-plane.yaml", "the shipped configuration")
	name := flag.String("case", "", "the cases to play, with commas; without it, all")
	isGain := flag.Bool("gain", false, "measure the work of the control plane instead")
	isServed := flag.Bool("serve", false, "a control plane alone: each line of the standard input is a push")
	listen := flag.String("listen", "127.0.0.1:0", "for --serve: the address")
	isQuiet := flag.Bool("quiet", false, "for --serve: only the address is printed")
	count := flag.Int("clusters", 6, "clusters of each key")
	direct := flag.String("direct", "", "compare nodes at this control plane with the same nodes at --relay; the arguments are files of nodes in JSON")
	relay := flag.String("relay", "127.0.0.1:18000", "for --direct: the relay")
	duration := flag.Duration("for", 0, "for --direct: compare again after each change, for this time")
	flag.Parse()
	switch {
	case *direct != "":
		if !compareLive(*direct, *relay, flag.Args(), *duration) {
			os.Exit(1)
		}
	case *isServed:
		serve(find(*name), *listen, *count, *isQuiet)
	case *isGain:
		gain(*binary, *file, *count)
	default:
		if !play(*binary, *file, *name, *count) {
			os.Exit(1)
		}
	}
}

func find(name string) *Case {
	for _, of := range cases() {
		if of.name == name {
			return &of
		}
	}
	fmt.Fprintln(os.Stderr, "--case must be one of these:")
	for _, of := range cases() {
		fmt.Fprintf(os.Stderr, "  %-16s %s\n", of.name, of.what)
	}
	os.Exit(2)
	return nil
}

// play plays some cases, or all.
func play(binary, file, name string, count int) bool {
	chosen := cases()
	if name != "" {
		chosen = nil
		for _, one := range strings.Split(name, ",") {
			chosen = append(chosen, *find(one))
		}
	}
	directory := must(os.MkdirTemp("", "world"))
	defer os.RemoveAll(directory)
	passed, failed := 0, 0
	// Worlds mostly wait, so several are on their way at a time; they are printed in their order.
	places, worlds := make(chan bool, 3), make([]chan *World, len(chosen))
	for number := range chosen {
		worlds[number] = make(chan *World, 1)
		go func() {
			places <- true
			defer func() { <-places }()
			of := &chosen[number]
			world := &World{of: of, plane: newPlane(of, count), all: of.nodes()}
			start := time.Now()
			world.printf("\n--- %s: %s\n\n", of.name, of.what)
			world.run(binary, file, directory)
			world.printf("    %.0f s\n", time.Since(start).Seconds())
			worlds[number] <- world
		}()
	}
	for _, finished := range worlds {
		world := <-finished
		fmt.Print(world.output.String())
		passed, failed = passed+world.passed, failed+world.failed
	}
	fmt.Printf("world: %d passed, %d failed, 0 skipped\n", passed, failed)
	return failed == 0
}

// serve is a control plane that makes a snapshot for each key when a proxy with the key comes. It ends with its standard input.
func serve(of *Case, listen string, count int, isQuiet bool) {
	plane := newPlane(of, count)
	plane.address = listen
	plane.tell = func(line string) {
		if !isQuiet {
			fmt.Println(line)
		}
	}
	if of.isLinear {
		plane.learn(newNode())
	}
	plane.start(true)
	fmt.Println(plane.address)
	lines := bufio.NewScanner(os.Stdin)
	for number := 0; lines.Scan(); number++ {
		plane.push(everyone, pushNumber(number))
		if !isQuiet {
			fmt.Printf("push %d, to %d streams\n", number+1, plane.open.Load())
		}
	}
}
