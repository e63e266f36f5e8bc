package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"sluice.example/tests/world/shared"
)

// serveWorld is istiod as a process of its own, so that its CPU time is apart from that of the proxies. It ends with its standard input.
func serveWorld(pods, services int) {
	cluster := newCluster(plan(podsOf(pods, 20), 20, services))
	http.HandleFunc("/push/", func(_ http.ResponseWriter, request *http.Request) {
		cluster.pushNumber(must(strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/push/"))))
	})
	address := shared.FreePort()
	go func() { check(http.ListenAndServe(address, nil)) }()
	fmt.Println(cluster.address, cluster.api.URL, address)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// Istiod is the process of serveWorld.
type Istiod struct {
	process              *exec.Cmd
	address, api, orders string
	pods                 []*Pod
}

func startIstiod(pods, services int) *Istiod {
	process := exec.Command(must(os.Executable()), "--serve", "--pods", strconv.Itoa(pods), "--services", strconv.Itoa(services))
	must(process.StdinPipe())
	output := must(process.StdoutPipe())
	check(process.Start())
	istiod := &Istiod{process: process, pods: podsOf(pods, 20)}
	must(fmt.Fscan(output, &istiod.address, &istiod.api, &istiod.orders))
	return istiod
}

func (i *Istiod) push(number int) {
	answer := must(http.Get(fmt.Sprintf("http://%s/push/%d", i.orders, number)))
	check(answer.Body.Close())
}

// gain measures istiod's work for proxies of one workload and zone, straight and behind the relay.
func gain(binary, config, directory string, pods, services int) {
	istiod := startIstiod(pods, services)
	defer func() {
		_ = istiod.process.Process.Kill()
		_ = istiod.process.Wait()
	}()
	relay := startRelay(binary, config, directory, istiod.address, istiod.api)
	defer relay.End()
	// The first push to a fresh istiod costs more, whoever asks.
	warm := connectAll(istiod.address, istiod.pods[:4], delta)
	pushes := 0
	push := func() {
		istiod.push(pushes)
		pushes++
	}
	for range 6 {
		push()
		settleAll(2*time.Second, time.Time{}, warm)
	}
	endAll(warm)
	fmt.Printf("%d proxies, %d Services; CPU of istiod\n", pods, services+len(workloads))
	for _, side := range []struct{ name, address string }{{"direct", istiod.address}, {"relayed", relay.Address}} {
		before := shared.CPU(istiod.process)
		proxies := connectAll(side.address, istiod.pods, delta)
		settleAll(2*time.Second, time.Time{}, proxies)
		connected := shared.CPU(istiod.process) - before
		before = shared.CPU(istiod.process)
		delays := []string{}
		for range 6 {
			start := time.Now()
			push()
			last := settleAll(2*time.Second, time.Time{}, proxies)
			delays = append(delays, fmt.Sprintf("%.2f", last.Sub(start).Seconds()))
		}
		fmt.Printf("%-8s connecting %5.2f s, six pushes %5.2f s; the last proxy has each push after %s s\n",
			side.name, connected.Seconds(), (shared.CPU(istiod.process) - before).Seconds(), strings.Join(delays, ", "))
		endAll(proxies)
	}
}

func connectAll(address string, pods []*Pod, variant Variant) map[string]*Proxy {
	proxies := map[string]*Proxy{}
	for _, pod := range pods {
		proxies[pod.name] = connect(address, pod, variant)
	}
	return proxies
}

func endAll(proxies map[string]*Proxy) {
	for _, proxy := range proxies {
		proxy.stop()
	}
}
