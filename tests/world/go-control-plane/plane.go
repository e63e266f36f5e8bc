package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"sluice.example/tests/world/shared"
)

// hashFunc is a NodeHash.
type hashFunc func(*core.Node) string

func (f hashFunc) ID(node *core.Node) string { return f(node) }

// Plane is a control plane: the library's server and caches, and the contents behind the keys of the hash.
type Plane struct {
	of      *Case
	count   int
	address string
	// Streams that are open, of both variants.
	open atomic.Int64
	// Receives a line about each stream, if it is set.
	tell func(string)

	lock     sync.Mutex
	contents map[string]Content
	labels   map[string]string
	// The label that has no snapshot yet.
	late      string
	truths    map[string]shared.Contents
	version   int
	snapshots cache.SnapshotCache
	linear    map[string]*cache.LinearCache
	server    *grpc.Server
	end       context.CancelFunc

	rejectionsLock sync.Mutex
	rejections     []string
}

func newPlane(of *Case, count int) *Plane {
	return &Plane{
		of: of, count: count, address: "127.0.0.1:0",
		contents: map[string]Content{}, labels: map[string]string{}, truths: map[string]shared.Contents{}, late: "none",
	}
}

// learn makes a content for a node.
func (p *Plane) learn(node *core.Node) {
	p.lock.Lock()
	defer p.lock.Unlock()
	key, label := p.of.hash(node), p.of.labelOf(node)
	if _, isKnown := p.labels[key]; isKnown {
		return
	}
	p.labels[key] = label
	if p.contents[label] == nil {
		p.contents[label] = newContent(label, p.count)
	}
	if p.snapshots != nil {
		p.publish(key)
	}
}

// start serves on the address of the former start, with versions that begin anew. `isFilled`: with snapshots from the first request on.
func (p *Plane) start(isFilled bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	socket := must(net.Listen("tcp", p.address))
	p.address = socket.Addr().String()
	ctx, end := context.WithCancel(context.Background())
	p.end, p.version = end, 1
	p.snapshots, p.linear = nil, map[string]*cache.LinearCache{}
	var source cache.Cache
	if p.of.isLinear {
		caches := map[string]cache.Cache{}
		for _, kind := range kinds {
			p.linear[kind] = cache.NewLinearCache(kind)
			caches[kind] = p.linear[kind]
		}
		source = &cache.MuxCache{
			Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
			ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
			Caches:        caches,
		}
	} else {
		p.snapshots = cache.NewSnapshotCache(p.of.isADS, hashFunc(p.of.hash), nil)
		source = p.snapshots
	}
	if isFilled {
		p.publishAll()
	}
	p.server = grpc.NewServer(
		grpc.MaxConcurrentStreams(1000000),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, server.NewServer(ctx, source, p.callbacks()))
	go func() { _ = p.server.Serve(socket) }()
}

func (p *Plane) stop() {
	p.end()
	p.server.Stop()
}

// fill gives snapshots to a plane that started without. In state of the world the library answers an open request only by another version
// than the request states, and proxies state the last one after a restart, too. So the version is a new one.
func (p *Plane) fill() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.version++
	p.publishAll()
}

func (p *Plane) publishAll() {
	if p.of.isLinear {
		p.publishLinear()
		return
	}
	for key := range p.labels {
		p.publish(key)
	}
}

func (p *Plane) publish(key string) {
	if label := p.labels[key]; label != p.late {
		check(p.snapshots.SetSnapshot(context.Background(), key, p.contents[label].snapshot(fmt.Sprint(p.version))))
	}
}

// publishLinear updates the resources that changed; the order of the types is make before break.
func (p *Plane) publishLinear() {
	for _, content := range p.contents {
		for _, kind := range kinds {
			former, updated, gone := p.linear[kind].GetResources(), map[string]types.Resource{}, []string{}
			for name, one := range content[kind] {
				if former[name] != one {
					updated[name] = one
				}
			}
			for name := range former {
				if _, stays := content[kind][name]; !stays {
					gone = append(gone, name)
				}
			}
			if len(updated)+len(gone) > 0 {
				check(p.linear[kind].UpdateResources(updated, gone))
			}
		}
	}
}

// push changes the content of a label, or of all, and publishes a new version of it.
func (p *Plane) push(label string, change func(Content, string)) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.change(label, change)
	p.version++
	if p.of.isLinear {
		p.publishLinear()
		return
	}
	for key, of := range p.labels {
		if label == everyone || label == of {
			p.publish(key)
		}
	}
}

const everyone = "every label"

// change changes contents without a push.
func (p *Plane) change(label string, change func(Content, string)) {
	for of, content := range p.contents {
		if label == everyone || label == of {
			change(content, of)
			delete(p.truths, of)
		}
	}
}

// setLate takes away the snapshot of a label before the start, or gives it to the label later.
func (p *Plane) setLate(label string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	former := p.late
	p.late = label
	for key, of := range p.labels {
		if of == former && p.snapshots != nil {
			p.publish(key)
		}
	}
}

// truth is what a node must have.
func (p *Plane) truth(node *core.Node) shared.Contents {
	p.lock.Lock()
	defer p.lock.Unlock()
	label := p.labels[p.of.hash(node)]
	if label == p.late {
		return shared.Contents{}
	}
	if p.truths[label] == nil {
		p.truths[label] = p.contents[label].marshal()
	}
	return p.truths[label]
}

// callbacks count the streams, and tell about them.
func (p *Plane) callbacks() server.CallbackFuncs {
	told := sync.Map{}
	request := func(variant string, id int64, node *core.Node, rejection string) {
		p.noteRejection(rejection)
		if p.tell == nil {
			return
		}
		if _, isTold := told.LoadOrStore(fmt.Sprint(variant, id), true); !isTold {
			p.learn(node)
			p.tell(fmt.Sprintf("%s stream %d: node id %q, cluster %q", variant, id, node.GetId(), node.GetCluster()))
		}
		if rejection != "" {
			p.tell(fmt.Sprintf("%s stream %d: NACK: %s", variant, id, rejection))
		}
	}
	opened := func(context.Context, int64, string) error {
		p.open.Add(1)
		return nil
	}
	closed := func(variant string) func(int64, *core.Node) {
		return func(id int64, _ *core.Node) {
			p.open.Add(-1)
			if p.tell != nil {
				p.tell(fmt.Sprintf("%s stream %d closed", variant, id))
			}
		}
	}
	return server.CallbackFuncs{
		StreamOpenFunc: opened, DeltaStreamOpenFunc: opened,
		StreamClosedFunc: closed("SotW"), DeltaStreamClosedFunc: closed("delta"),
		StreamRequestFunc: func(id int64, r *discovery.DiscoveryRequest) error {
			request("SotW", id, r.GetNode(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			request("delta", id, r.GetNode(), r.GetErrorDetail().GetMessage())
			return nil
		},
	}
}
