package main

import (
	"bufio"
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

// ruleOf is the rule that the shipped file has for a case, in its comments.
func ruleOf(text, title string) string {
	_, after, isThere := strings.Cut(text, "# Case: "+title)
	if !isThere {
		panic("the configuration has no case " + title)
	}
	const begin = "# node_classes:\n"
	_, after, _ = strings.Cut(after, begin)
	var rule []string
	for _, line := range strings.Split(begin+after, "\n") {
		if strings.TrimSpace(line) == "#" || !strings.HasPrefix(line, "#") {
			break
		}
		rule = append(rule, strings.TrimPrefix(line, "# "))
	}
	return strings.Join(rule, "\n")
}

// activeRule is the rule that stands in the file, up to the next empty line.
var activeRule = regexp.MustCompile(`(?m)^node_classes:\n(?:[ #].*\n)*`)

// configuration is the shipped file with the rule of a case, and the addresses of this world.
func configuration(file string, of *Case, plane string, relay *Relay) string {
	text := string(must(os.ReadFile(file)))
	if of.title != "" {
		text = withRules(text, ruleOf(text, of.title))
	}
	if of.isSotw {
		text = replaceOnce(text, "api_type: AGGREGATED_DELTA_GRPC\n", "api_type: AGGREGATED_GRPC\n    wildcard: legacy\n")
	}
	if of.tellsRejections {
		text = replaceOnce(text, "    channel_creds: [{ type: insecure }]\n", "    channel_creds: [{ type: insecure }]\n    report_rejections: true\n")
	}
	text = replaceOnce(text, "control-plane.example:18000", plane)
	text = replaceOnce(text, "0.0.0.0:18000", relay.address)
	if regexp.MustCompile(`(?m)^(admin|linger):`).MatchString(text) {
		panic(file + " has an admin listener, or a linger")
	}
	return text + fmt.Sprintf("\nadmin: { address: %q }\nlinger: 2s\n", relay.admin)
}

func withRules(text, rules string) string {
	if len(activeRule.FindAllString(text, -1)) != 1 {
		panic("the configuration does not have one rule")
	}
	return activeRule.ReplaceAllLiteralString(text, rules+"\n")
}

func replaceOnce(text, from, to string) string {
	if strings.Count(text, from) != 1 {
		panic(fmt.Sprintf("the configuration does not have %q once", from))
	}
	return strings.Replace(text, from, to, 1)
}

// startRelay runs a configuration. `rules` takes the place of those of the case, if it is not empty.
func startRelay(binary, file, directory string, of *Case, plane, rules string) *Relay {
	relay := &Relay{address: freePort(), admin: freePort()}
	text := configuration(file, of, plane, relay)
	if rules != "" {
		text = withRules(text, "node_classes:\n  "+rules)
	}
	used := filepath.Join(must(os.MkdirTemp(directory, of.name)), "sluice.yaml")
	check(os.WriteFile(used, []byte(text), 0o600))
	relay.log = used + ".log"
	output := must(os.Create(relay.log))
	defer output.Close()
	relay.process = exec.Command(binary, "serve", "--config", used)
	relay.process.Stderr = output
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
	answer := must(http.Get("http://" + r.admin + "/metrics"))
	defer answer.Body.Close()
	sum, lines := 0.0, bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "sluice_upstream_streams{") {
			var value float64
			must(fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value))
			sum += value
		}
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
