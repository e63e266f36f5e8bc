package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Relay is the built binary.
type Relay struct {
	address, admin, log string
	process             *exec.Cmd
}

func freePort() string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

// rules are those that stand in the file, up to the next empty line.
var rules = regexp.MustCompile(`(?m)^node_classes:\n(?:[ #].*\n)*`)

// configuration is the shipped file with the addresses of this world. Its certificates stand beside it by the names in it.
func configuration(file, xds string, relay *Relay) string {
	text := string(must(os.ReadFile(file)))
	text = replaceOnce(text, "envoy-gateway-xds.envoy-gateway-system.svc:18000", xds)
	text = replaceOnce(text, "0.0.0.0:18000", relay.address)
	if regexp.MustCompile(`(?m)^(admin|linger|node):`).MatchString(text) {
		panic(file + " has an admin listener, a linger, or a node")
	}
	return text + fmt.Sprintf("\nadmin: { address: %q }\nlinger: 2s\nnode: { id: relay }\n", relay.admin)
}

func replaceOnce(text, from, to string) string {
	if strings.Count(text, from) != 1 {
		panic(fmt.Sprintf("the configuration does not have %q once", from))
	}
	return strings.Replace(text, from, to, 1)
}

// withRules puts other rules in the place of those that are shipped.
func withRules(text, other string) string {
	if len(rules.FindAllString(text, -1)) != 1 {
		panic("the configuration does not have one list of rules")
	}
	return rules.ReplaceAllLiteralString(text, "node_classes:\n"+other+"\n")
}

// startRelay runs the shipped file, changed by `change` if that is not nil.
func startRelay(binary, file, directory string, change func(string) string) *Relay {
	relay := &Relay{address: freePort(), admin: freePort()}
	text := configuration(file, xdsAddress, relay)
	if change != nil {
		text = change(text)
	}
	used := filepath.Join(directory, fmt.Sprintf("sluice-%d.yaml", time.Now().UnixNano()))
	check(os.WriteFile(used, []byte(text), 0o600))
	relay.log = used + ".log"
	output := must(os.Create(relay.log))
	defer output.Close()
	relay.process = exec.Command(binary, "serve", "--config", used)
	relay.process.Stderr = output
	relay.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(relay.process.Start())
	for range 200 {
		if answer, err := http.Get("http://" + relay.admin + "/ready"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return relay
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	panic("the relay is not ready: " + string(must(os.ReadFile(relay.log))))
}

func (r *Relay) end() {
	check(r.process.Process.Signal(syscall.SIGTERM))
	_ = r.process.Wait()
}

// streams is the number of upstream streams.
func (r *Relay) streams() int {
	sum := 0.0
	for _, value := range metrics("http://"+r.admin+"/metrics", "sluice_upstream_streams{") {
		sum += value
	}
	return int(sum)
}

// warnings are the last lines of the log that are no news.
func (r *Relay) warnings() string {
	var found []string
	for _, line := range strings.Split(string(must(os.ReadFile(r.log))), "\n") {
		if !strings.Contains(line, " INFO ") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-20):], "\n")
}
