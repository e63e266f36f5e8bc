package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sluice.example/tests/world/shared"
)

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
func configuration(file string, of *Case, plane string, relay *shared.Relay) string {
	text := string(must(os.ReadFile(file)))
	if of.title != "" {
		text = withRules(text, ruleOf(text, of.title))
	}
	if of.isSotw {
		text = shared.ReplaceOnce(text, "api_type: AGGREGATED_DELTA_GRPC\n", "api_type: AGGREGATED_GRPC\n    wildcard: legacy\n")
	}
	if of.tellsRejections {
		text = shared.ReplaceOnce(text, "    channel_creds: [{ type: insecure }]\n", "    channel_creds: [{ type: insecure }]\n    report_rejections: true\n")
	}
	text = shared.ReplaceOnce(text, "control-plane.example:18000", plane)
	text = shared.ReplaceOnce(text, "0.0.0.0:18000", relay.Address)
	if regexp.MustCompile(`(?m)^(admin|linger):`).MatchString(text) {
		panic(file + " has an admin listener, or a linger")
	}
	return text + fmt.Sprintf("\nadmin: { address: %q }\nlinger: 2s\n", relay.Admin)
}

func withRules(text, rules string) string {
	if len(activeRule.FindAllString(text, -1)) != 1 {
		panic("the configuration does not have one rule")
	}
	return activeRule.ReplaceAllLiteralString(text, rules+"\n")
}

// startRelay runs a configuration. `rules` takes the place of those of the case, if it is not empty.
func startRelay(binary, file, directory string, of *Case, plane, rules string) *shared.Relay {
	relay := shared.NewRelay()
	text := configuration(file, of, plane, relay)
	if rules != "" {
		text = withRules(text, "node_classes:\n  "+rules)
	}
	if strings.Contains(rules, "upstream_node: member") {
		text += "proof: { policy: warn, streams: 8, per_minute: 600, settle: 1s, window: 10s }\n"
	}
	used := filepath.Join(must(os.MkdirTemp(directory, of.name)), "sluice.yaml")
	relay.Start(binary, used, text)
	return relay
}
