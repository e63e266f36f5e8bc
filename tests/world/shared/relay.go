// Package shared has what the worlds have in common: the relay's process, streams in both variants, and the comparison of two proxies.
package shared

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
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

// Relay is the built binary, with the addresses that its configuration has.
type Relay struct {
	Address, Admin, log string
	Process             *exec.Cmd
}

// FreePort is an address of this host where nobody listens.
func FreePort() string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

// NewRelay has addresses for a configuration.
func NewRelay() *Relay {
	return &Relay{Address: FreePort(), Admin: FreePort()}
}

// Start runs a configuration in a file until the relay is ready. A world that is stopped leaves no relay behind.
func (r *Relay) Start(binary, file, text string) {
	check(os.WriteFile(file, []byte(text), 0o600))
	r.log = file + ".log"
	output := must(os.Create(r.log))
	defer output.Close()
	r.Process = exec.Command(binary, "serve", "--config", file)
	r.Process.Stderr = output
	r.Process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(r.Process.Start())
	for range 200 {
		if answer, err := http.Get("http://" + r.Admin + "/ready"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	panic("the relay is not ready: " + string(must(os.ReadFile(r.log))))
}

// End ends the relay.
func (r *Relay) End() {
	check(r.Process.Process.Signal(syscall.SIGTERM))
	_ = r.Process.Wait()
}

// Streams is the number of upstream streams.
func (r *Relay) Streams() int {
	answer := must(http.Get("http://" + r.Admin + "/metrics"))
	defer answer.Body.Close()
	sum, lines := 0.0, bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "sluice_upstream_streams{") {
			sum += must(strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64))
		}
	}
	return int(sum)
}

// Warnings are the last lines of the log that are no news.
func (r *Relay) Warnings() string {
	var found []string
	for _, line := range strings.Split(string(must(os.ReadFile(r.log))), "\n") {
		if !strings.Contains(line, " INFO ") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-30):], "\n")
}

// ReplaceOnce replaces a text of a configuration that has it once.
func ReplaceOnce(text, from, to string) string {
	if strings.Count(text, from) != 1 {
		panic(fmt.Sprintf("the configuration does not have %q once", from))
	}
	return strings.Replace(text, from, to, 1)
}

// CPU is the CPU time of a process so far.
func CPU(process *exec.Cmd) time.Duration {
	text := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid))))
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	ticks := must(strconv.Atoi(fields[11])) + must(strconv.Atoi(fields[12]))
	return time.Duration(ticks) * 10 * time.Millisecond
}
