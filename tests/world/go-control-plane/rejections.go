package main

import (
	"fmt"
	"strings"
	"time"
)

// rejections lets two proxies of a class reject a push. The control plane hears of it once, from the stream of the class, and has nothing
// to answer.
func (w *World) rejections() {
	if !w.of.tellsRejections {
		return
	}
	class, clients := w.of.classOf(w.pairs[0].node), 0
	for _, pair := range w.pairs {
		if w.of.classOf(pair.node) != class {
			continue
		}
		if clients++; clients <= 2 {
			pair.relayed.setRejects("bad port")
		}
	}
	w.plane.push(everyone, func(c Content, label string) { c.putCluster("rejected", label, 1) })
	w.compare("a push that two proxies reject")
	for _, pair := range w.pairs {
		pair.relayed.setRejects("")
	}
	before, _ := w.messages()
	for start := time.Now(); len(w.plane.heardRejections()) == 0 && time.Since(start) < silent; time.Sleep(25 * time.Millisecond) {
	}
	time.Sleep(quiet)
	after, _ := w.messages()
	told := w.plane.heardRejections()
	isTold := len(told) == 1 && strings.HasPrefix(told[0], fmt.Sprintf("2 of %d clients reject this: ", clients))
	w.row(isTold && after == before, "%-52s %3d times: %q, %d responses after it", "  the control plane hears of it", len(told), told, after-before)
}

func (p *Proxy) setRejects(words string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.rejects = words
}

// noteRejection keeps the words of a request with an error.
func (p *Plane) noteRejection(words string) {
	p.rejectionsLock.Lock()
	defer p.rejectionsLock.Unlock()
	if words != "" {
		p.rejections = append(p.rejections, words)
	}
}

func (p *Plane) heardRejections() []string {
	p.rejectionsLock.Lock()
	defer p.rejectionsLock.Unlock()
	return p.rejections
}
