package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"sluice.example/tests/world/shared"
)

// rules are those that stand in the file, up to the next empty line.
var rules = regexp.MustCompile(`(?m)^node_classes:\n(?:[ #].*\n)*`)

// configuration is the shipped file with the addresses of this world. Its certificates stand beside it by the names in it.
func configuration(file, xds string, relay *shared.Relay) string {
	text := string(must(os.ReadFile(file)))
	text = shared.ReplaceOnce(text, "envoy-gateway-xds.envoy-gateway-system.svc:18000", xds)
	text = shared.ReplaceOnce(text, "0.0.0.0:18000", relay.Address)
	if regexp.MustCompile(`(?m)^(admin|linger|node):`).MatchString(text) {
		panic(file + " has an admin listener, a linger, or a node")
	}
	return text + fmt.Sprintf("\nadmin: { address: %q }\nlinger: 2s\nnode: { id: relay }\n", relay.Admin)
}

// withRules puts other rules in the place of those that are shipped.
func withRules(text, other string) string {
	if len(rules.FindAllString(text, -1)) != 1 {
		panic("the configuration does not have one list of rules")
	}
	return rules.ReplaceAllLiteralString(text, "node_classes:\n"+other+"\n")
}

// startRelay runs the shipped file, changed by `change` if that is not nil.
func startRelay(binary, file, directory string, change func(string) string) *shared.Relay {
	relay := shared.NewRelay()
	text := configuration(file, xdsAddress, relay)
	if change != nil {
		text = change(text)
	}
	used := filepath.Join(directory, fmt.Sprintf("sluice-%d.yaml", time.Now().UnixNano()))
	relay.Start(binary, used, text)
	return relay
}
