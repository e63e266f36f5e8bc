package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"sluice.example/tests/world/shared"
)

const (
	proxies = 200
	rounds  = 3
)

// Served is a control plane as a process of its own, so that its CPU time is apart from that of the proxies.
type Served struct {
	process *exec.Cmd
	pushes  io.Writer
	address string
}

func startServed(of *Case, count int) *Served {
	process := exec.Command(must(os.Executable()), "--serve", "--quiet", "--case", of.name, "--clusters", strconv.Itoa(count))
	pushes, output := must(process.StdinPipe()), must(process.StdoutPipe())
	process.Stderr = os.Stderr
	check(process.Start())
	served := &Served{process: process, pushes: pushes}
	must(fmt.Fscan(output, &served.address))
	return served
}

func (s *Served) push() {
	must(fmt.Fprintln(s.pushes))
}

func (s *Served) end() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// settled waits until no proxy has heard anything for a second, and returns the time of the last response.
func settled(all []*Proxy) time.Time {
	last := time.Time{}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		for _, proxy := range all {
			if heard, _, _ := proxy.heard(); heard.After(last) {
				last = heard
			}
		}
		if time.Since(last) > time.Second && time.Since(start) > time.Second {
			break
		}
	}
	return last
}

// gain measures the work of the control plane for proxies of one class, straight and behind the relay.
func gain(binary, file string, count int) {
	directory := must(os.MkdirTemp("", "world"))
	defer os.RemoveAll(directory)
	of := find("cluster")
	fmt.Printf("%d proxies of one cluster, %d clusters; CPU of the control plane, and of the relay\n", proxies, count)
	for _, isDelta := range []bool{true, false} {
		for range rounds {
			round(of, binary, file, directory, count, isDelta)
		}
	}
}

// round measures one variant on a fresh control plane and a fresh relay.
func round(of *Case, binary, file, directory string, count int, isDelta bool) {
	served := startServed(of, count)
	defer served.end()
	relay := startRelay(binary, file, directory, of, served.address, "")
	defer relay.End()
	connect := func(address string, nodes []Named) []*Proxy {
		var all []*Proxy
		for _, named := range nodes {
			all = append(all, newProxy(address, named.node, isDelta, asks...))
		}
		return all
	}
	// The first push to a fresh process costs more, whoever asks.
	warm := connect(served.address, members(4))
	for range 6 {
		settled(warm)
		served.push()
	}
	settled(warm)
	stopAll(warm)
	for _, side := range []struct{ name, address string }{{"direct", served.address}, {"relayed", relay.Address}} {
		before, relayBefore := shared.CPU(served.process), shared.CPU(relay.Process)
		all := connect(side.address, members(proxies))
		settled(all)
		connected := shared.CPU(served.process) - before
		before = shared.CPU(served.process)
		var delays []string
		for range 6 {
			start := time.Now()
			served.push()
			delays = append(delays, fmt.Sprintf("%.2f", settled(all).Sub(start).Seconds()))
		}
		fmt.Printf("%-5s %-8s connecting %5.2f s, six pushes %5.2f s, the relay %5.2f s; the last proxy has each push after %s s\n",
			map[bool]string{true: "delta", false: "SotW"}[isDelta], side.name, connected.Seconds(), (shared.CPU(served.process) - before).Seconds(),
			(shared.CPU(relay.Process) - relayBefore).Seconds(), strings.Join(delays, ", "))
		stopAll(all)
	}
}

func stopAll(all []*Proxy) {
	for _, proxy := range all {
		proxy.stop()
	}
}
