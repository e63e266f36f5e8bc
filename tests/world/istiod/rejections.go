package main

import (
	"fmt"
	"time"

	"istio.io/istio/pkg/monitoring/monitortest"
)

// rejects is istiod's own count of rejections.
func rejects() float64 {
	sum := 0.0
	for _, family := range must(monitortest.TestRegistry(&failer{}).Gather()) {
		if family.GetName() != "pilot_total_xds_rejects" {
			continue
		}
		for _, metric := range family.GetMetric() {
			sum += metric.GetCounter().GetValue()
		}
	}
	return sum
}

// rejections lets a relayed proxy reject a push: istiod counts one rejection, as it would without the relay, and answers nothing.
func (w *World) rejections() {
	pod := w.cluster.pods[0]
	before := rejects()
	w.relayed[pod.name].rejects.Store(true)
	w.cluster.limit(88)
	w.compare("after a push that a proxy rejects")
	w.relayed[pod.name].rejects.Store(false)
	for start := time.Now(); rejects() == before && time.Since(start) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
	}
	counts := w.counts()
	time.Sleep(time.Second)
	w.silence(counts, false, "istiod has heard of the rejection")
	told := rejects() - before
	fmt.Printf("  pilot_total_xds_rejects grows by %.0f\n", told)
	if told != 1 {
		w.fault("istiod counts %.0f rejections, and not one", told)
	}
}
