package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Gateway is the built binary of Envoy Gateway. Its ports are fixed in the program.
type Gateway struct {
	binary, directory, log string
	process                *exec.Cmd
}

const (
	xdsAddress     = "127.0.0.1:18000"
	readyURL       = "http://127.0.0.1:8081/readyz"
	metricsURL     = "http://127.0.0.1:19001/metrics"
	envoyVersion   = "1.0.0"
	controllerName = "gateway.envoyproxy.io/gatewayclass-controller"
)

const gatewayConfiguration = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: { controllerName: %[2]s }
provider:
  type: Custom
  custom:
    resource: { type: File, file: { paths: ["%[1]s/resources"] } }
    infrastructure:
      type: Host
      host: { configHome: "%[1]s", dataHome: "%[1]s/data", stateHome: "%[1]s/state", runtimeDir: "%[1]s/run" }
extensionApis: { enableBackend: true }
`

// Envoy Gateway runs this in place of Envoy. It tells the node that the proxy would state, and ends.
const placeholder = `#!/bin/sh
while [ $# -gt 1 ]; do
    case $1 in
    --service-cluster) cluster=$2 ;;
    --service-node) node=$2 ;;
    esac
    shift
done
echo "$cluster $node" >>"%s/envoys"
`

// newGateway makes what the program needs in a directory: its certificates, by the program itself, and the placeholder of Envoy.
func newGateway(binary, directory string) *Gateway {
	gateway := &Gateway{binary: must(filepath.Abs(binary)), directory: directory, log: filepath.Join(directory, "gateway.log")}
	check(os.WriteFile(gateway.configuration(), fmt.Appendf(nil, gatewayConfiguration, directory, controllerName), 0o600))
	envoy := filepath.Join(directory, "data", "envoy-versions", envoyVersion, "bin", "envoy")
	check(os.MkdirAll(filepath.Dir(envoy), 0o700))
	check(os.WriteFile(envoy, fmt.Appendf(nil, placeholder, directory), 0o700))
	if output, err := exec.Command(gateway.binary, "certgen", "--local", "--config-home", directory).CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, output))
	}
	return gateway
}

func (g *Gateway) configuration() string {
	return filepath.Join(g.directory, "gateway.yaml")
}

// certificates is the directory with the client certificate of all Envoys.
func (g *Gateway) certificates() string {
	return filepath.Join(g.directory, "certs", "envoy")
}

func (g *Gateway) start() {
	output := must(os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer output.Close()
	g.process = exec.Command(g.binary, "server", "--config-path", g.configuration())
	g.process.Stdout, g.process.Stderr = output, output
	g.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(g.process.Start())
	for range 400 {
		if answer, err := http.Get(readyURL); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	panic("Envoy Gateway is not ready: " + string(must(os.ReadFile(g.log))))
}

// stop ends it at once, as a lost node would.
func (g *Gateway) stop() {
	check(g.process.Process.Kill())
	_ = g.process.Wait()
}

// clusters are the `node.cluster` of the Envoys that it started.
func (g *Gateway) clusters() map[string]bool {
	found := map[string]bool{}
	text, _ := os.ReadFile(filepath.Join(g.directory, "envoys"))
	for _, line := range strings.Split(string(text), "\n") {
		if cluster, _, isThere := strings.Cut(line, " "); isThere {
			found[cluster] = true
		}
	}
	return found
}

// warnings are the last lines of the log that tell of a fault.
func (g *Gateway) warnings() string {
	var found []string
	for _, line := range strings.Split(string(must(os.ReadFile(g.log))), "\n") {
		if strings.Contains(line, "\twarn\t") || strings.Contains(line, "\terror\t") || strings.HasPrefix(line, "panic") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-20):], "\n")
}

// metrics are the samples of a page whose lines begin with a text.
func metrics(url, beginning string) map[string]float64 {
	answer := must(http.Get(url))
	defer answer.Body.Close()
	found, lines := map[string]float64{}, bufio.NewScanner(io.LimitReader(answer.Body, 16<<20))
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, beginning) {
			continue
		}
		end := strings.LastIndex(line, " ")
		found[line[:end]] = must(strconv.ParseFloat(line[end+1:], 64))
	}
	return found
}
