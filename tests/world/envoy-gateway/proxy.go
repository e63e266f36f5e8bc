package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"sluice.example/tests/world/shared"
)

// kinds are the types of the world that are asked for by name, in the order of make before break.
var kinds = []string{secrets, endpoints, routes}

// Proxy is a client that subscribes like Envoy: all clusters and listeners, and the endpoints, routes and Secrets that they refer to.
type Proxy struct {
	node *core.Node
	stop context.CancelFunc

	lock   sync.Mutex
	last   time.Time
	failed error
	// Responses, responses that changed nothing, and resources that a response took away.
	messages, idle, removals int
	has                      map[string]map[string]held
	// The names of each type, sorted.
	wanted map[string][]string
	// A type whose next response is stored and rejected all the same.
	rejects string
}

// held is a resource with its references to others.
type held struct {
	shared.Resource
	to []reference
}

// clientTLS is what Envoy Gateway's Envoys have: one certificate for all, the authority, and no check of the server's name.
func clientTLS(directory string) *tls.Config {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(directory, "ca.crt")))) {
		panic(directory + " has no authority")
	}
	pair := must(tls.LoadX509KeyPair(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")))
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: authorities})
			return err
		},
	}
}

// newProxy connects. An address of digits is not sent as a server name.
func newProxy(address string, secured *tls.Config, node *core.Node, isDelta bool) *Proxy {
	ctx, stop := context.WithCancel(context.Background())
	proxy := &Proxy{
		node: node, stop: stop, last: time.Now(), has: map[string]map[string]held{}, wanted: map[string][]string{},
	}
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(secured))))
	go func() {
		defer connection.Close()
		ads, err := shared.Open(ctx, connection, proto.Clone(node).(*core.Node), isDelta)
		if err == nil {
			err = proxy.run(ctx, ads)
		}
		proxy.lock.Lock()
		defer proxy.lock.Unlock()
		if ctx.Err() == nil {
			proxy.failed = err
		}
	}()
	return proxy
}

func (p *Proxy) run(ctx context.Context, ads shared.Stream) error {
	for _, kind := range []string{clusters, listeners} {
		if err := p.subscribe(ads, kind, []string{shared.Wildcard}); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		received, err := ads.Receive()
		if err == nil {
			err = p.take(ads, received)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (p *Proxy) subscribe(ads shared.Stream, kind string, names []string) error {
	p.lock.Lock()
	former := p.wanted[kind]
	p.wanted[kind] = names
	for _, name := range shared.Without(former, names) {
		delete(p.has[kind], name)
	}
	p.lock.Unlock()
	return ads.Subscribe(kind, names, former)
}

func (p *Proxy) take(ads shared.Stream, received *shared.Update) error {
	p.lock.Lock()
	p.last = time.Now()
	p.messages++
	p.store(received)
	next := p.references()
	names := p.wanted[received.Kind]
	answer := ads.Accept
	if p.rejects == received.Kind {
		p.rejects = ""
		answer = func(received *shared.Update, names []string) error { return ads.Reject(received, names, "bad port") }
	}
	p.lock.Unlock()
	if err := answer(received, names); err != nil {
		return err
	}
	for _, kind := range kinds {
		if !slices.Equal(next[kind], p.wanted[kind]) {
			if err := p.subscribe(ads, kind, next[kind]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Proxy) store(received *shared.Update) {
	has := p.has[received.Kind]
	if has == nil {
		has = map[string]held{}
		p.has[received.Kind] = has
	}
	wanted, isIdle := p.wanted[received.Kind], true
	for name, resource := range received.Resources {
		// A name that was given up may be on its way.
		_, isWanted := slices.BinarySearch(wanted, name)
		if !isWanted && !slices.Equal(wanted, []string{shared.Wildcard}) {
			continue
		}
		if former, isThere := has[name]; !isThere || !former.Equals(resource) {
			has[name], isIdle = held{resource, references(received.Kind, resource.Body)}, false
		}
	}
	gone := received.Removed
	if received.IsWhole {
		for name := range has {
			if _, stays := received.Resources[name]; !stays {
				gone = append(gone, name)
			}
		}
	}
	for _, name := range gone {
		if _, isThere := has[name]; isThere {
			p.removals++
			isIdle = false
			delete(has, name)
		}
	}
	if isIdle {
		p.idle++
	}
}

// references are the names of each type to which all resources refer.
func (p *Proxy) references() map[string][]string {
	found, next := map[reference]bool{}, map[string][]string{}
	for _, resources := range p.has {
		for _, one := range resources {
			for _, to := range one.to {
				found[to] = true
			}
		}
	}
	for to := range found {
		next[to.kind] = append(next[to.kind], to.name)
	}
	for _, names := range next {
		slices.Sort(names)
	}
	return next
}

// heard is the time of the last response, and the number of responses so far, of those that changed nothing, and of removals.
func (p *Proxy) heard() (time.Time, [3]int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.last, [3]int{p.messages, p.idle, p.removals}
}

// contains tells whether any resource has a text.
func (p *Proxy) contains(text string) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, resources := range p.has {
		for _, one := range resources {
			if bytes.Contains(one.Body, []byte(text)) {
				return true
			}
		}
	}
	return false
}

// reject lets the next response of a type be rejected.
func (p *Proxy) reject(kind string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.rejects = kind
}

// bodies are the resources by type, or the error that ended the stream.
func (p *Proxy) bodies() (shared.Contents, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	all := shared.Contents{}
	for kind, resources := range p.has {
		all[kind] = map[string]shared.Resource{}
		for name, one := range resources {
			all[kind][name] = one.Resource
		}
	}
	return all, p.failed
}

// differences are the resources that two proxies with one node have otherwise.
func differences(direct, relayed *Proxy) []string {
	one, failedDirect := direct.bodies()
	other, failedRelayed := relayed.bodies()
	found := shared.Compare(one, other)
	for side, err := range map[string]error{"direct": failedDirect, "relayed": failedRelayed} {
		if err != nil {
			found = append(found, fmt.Sprintf("%s: %v", side, err))
		}
	}
	return found
}
