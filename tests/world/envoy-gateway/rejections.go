package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// rejections lets two Envoys of a gateway reject its clusters. Envoy Gateway counts one rejection, of the relay, and logs their words.
func (w *World) rejections() {
	for _, twin := range w.twins[:2] {
		twin.relayed[0].reject(clusters)
	}
	w.play1(Step{"clusters that two proxies reject", func(r *Resources) {
		r.putBackend("shop-rejected", "10.1.7.7")
		r.putRoute("shop-rejected", "shop", "shop-rejected")
	}, map[string]string{"shop": "10.1.7.7"}, nil})
	counted, words := 0.0, ""
	for start := time.Now(); counted == 0 && time.Since(start) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
		for name, value := range metrics(metricsURL, "xds_nack_total{") {
			if strings.Contains(name, "relay/") && strings.Contains(name, clusters) {
				counted += value
			}
		}
		_, words, _ = strings.Cut(string(must(os.ReadFile(w.gateway.log))), "Envoy rejected the last update")
		_, words, _ = strings.Cut(strings.SplitN(words, "\n", 2)[0], " and message ")
		words, _, _ = strings.Cut(words, ";")
	}
	isTold := counted == 1 && strings.HasPrefix(words, fmt.Sprintf("2 of %d clients reject this: ", w.members()))
	w.row(isTold, "%-58s %.0f in xds_nack_total; its log: %s", "  Envoy Gateway hears of it", counted, words)
	w.kept("the rejections", func() {})
}

// members is the number of relayed proxies in the class of the first one.
func (w *World) members() int {
	count := 0
	for _, twin := range w.twins {
		if classOf(twin.node) == classOf(w.twins[0].node) {
			count += len(variants)
		}
	}
	return count
}
