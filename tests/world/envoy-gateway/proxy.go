package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
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
	body []byte
	to   []reference
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
		ads, err := openStream(ctx, connection, proto.Clone(node).(*core.Node), isDelta)
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

func (p *Proxy) run(ctx context.Context, ads stream) error {
	for _, kind := range []string{clusters, listeners} {
		if err := p.subscribe(ads, kind, []string{wildcard}); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		received, err := ads.receive()
		if err == nil {
			err = p.take(ads, received)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (p *Proxy) subscribe(ads stream, kind string, names []string) error {
	p.lock.Lock()
	former := p.wanted[kind]
	p.wanted[kind] = names
	for _, name := range without(former, names) {
		delete(p.has[kind], name)
	}
	p.lock.Unlock()
	return ads.subscribe(kind, names, former)
}

func (p *Proxy) take(ads stream, received *update) error {
	p.lock.Lock()
	p.last = time.Now()
	p.messages++
	p.store(received)
	next := p.references()
	names := p.wanted[received.kind]
	answer := ads.accept
	if p.rejects == received.kind {
		p.rejects, answer = "", ads.reject
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

func (p *Proxy) store(received *update) {
	has := p.has[received.kind]
	if has == nil {
		has = map[string]held{}
		p.has[received.kind] = has
	}
	wanted, isIdle := p.wanted[received.kind], true
	for name, body := range received.bodies {
		// A name that was given up may be on its way.
		_, isWanted := slices.BinarySearch(wanted, name)
		if !isWanted && !slices.Equal(wanted, []string{wildcard}) {
			continue
		}
		if !bytes.Equal(has[name].body, body) {
			has[name], isIdle = held{body, references(received.kind, body)}, false
		}
	}
	gone := received.removed
	if received.isWhole {
		for name := range has {
			if _, stays := received.bodies[name]; !stays {
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
			if bytes.Contains(one.body, []byte(text)) {
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

// Bodies are resources by type and name.
type Bodies map[string]map[string][]byte

// bodies are the resources by type, or the error that ended the stream.
func (p *Proxy) bodies() (Bodies, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	all := Bodies{}
	for kind, resources := range p.has {
		all[kind] = map[string][]byte{}
		for name, one := range resources {
			all[kind][name] = one.body
		}
	}
	return all, p.failed
}

// differences are the resources that two proxies with one node have otherwise.
func differences(direct, relayed *Proxy) []string {
	one, failedDirect := direct.bodies()
	other, failedRelayed := relayed.bodies()
	found := compare(one, other)
	for side, err := range map[string]error{"direct": failedDirect, "relayed": failedRelayed} {
		if err != nil {
			found = append(found, fmt.Sprintf("%s: %v", side, err))
		}
	}
	return found
}

func compare(direct, relayed Bodies) []string {
	var found []string
	all := maps.Clone(direct)
	maps.Copy(all, relayed)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		names := map[string][]byte{}
		maps.Copy(names, direct[kind])
		maps.Copy(names, relayed[kind])
		for _, name := range slices.Sorted(maps.Keys(names)) {
			one, inDirect := direct[kind][name]
			other, inRelayed := relayed[kind][name]
			switch {
			case !inRelayed:
				found = append(found, fmt.Sprintf("%s %s is missing", kind, name))
			case !inDirect:
				found = append(found, fmt.Sprintf("%s %s is too much", kind, name))
			case !bytes.Equal(one, other):
				found = append(found, fmt.Sprintf("%s %s differs", kind, name))
			}
		}
	}
	return found
}
