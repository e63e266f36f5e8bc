package shared

import (
	"bytes"
	"context"
	"slices"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Wildcard is the name of everything.
const Wildcard = "*"

// The kinds of resources that a state of the world has whole: what is missing is gone. The name table has no name.
const (
	Clusters   = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	Listeners  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	NameTables = "type.googleapis.com/istio.networking.nds.v1.NameTable"
)

// Resource is what a proxy has by a name. The version is the sender's own.
type Resource struct {
	Body    []byte
	Aliases []string
	Version string
}

// Equals tells whether two resources are one to a proxy.
func (r Resource) Equals(other Resource) bool {
	return bytes.Equal(r.Body, other.Body) && slices.Equal(r.Aliases, other.Aliases)
}

// Update is a response in either variant.
type Update struct {
	Kind, version, nonce string
	Resources            map[string]Resource
	Removed              []string
	// Resources of the kind that are missing here are gone.
	IsWhole bool
}

// Stream is an aggregated stream in either variant. The node goes with its first request only, as with Istio's Envoy.
type Stream interface {
	// Subscribe asks for names in place of the former ones.
	Subscribe(kind string, names, former []string) error
	Receive() (*Update, error)
	// Accept is the ACK of an update, with the names of its kind.
	Accept(received *Update, names []string) error
	// Reject is the NACK of an update.
	Reject(received *Update, names []string, words string) error
}

// Open opens a stream, once the peer is there.
func Open(ctx context.Context, connection *grpc.ClientConn, node *core.Node, isDelta bool) (Stream, error) {
	client := discovery.NewAggregatedDiscoveryServiceClient(connection)
	if isDelta {
		ads, err := client.DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
		return &DeltaStream{ads: ads, node: node}, err
	}
	ads, err := client.StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	return &sotwStream{ads, node, map[string][2]string{}}, err
}

// DeltaStream tells changes of names, and is told changes of resources.
type DeltaStream struct {
	ads  discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	lock sync.Mutex
	node *core.Node
}

// Send sends a request, from any goroutine.
func (s *DeltaStream) Send(request *discovery.DeltaDiscoveryRequest) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.node != nil {
		request.Node, s.node = s.node, nil
	}
	return s.ads.Send(request)
}

func (s *DeltaStream) Subscribe(kind string, names, former []string) error {
	return s.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl:                  kind,
		ResourceNamesSubscribe:   Without(names, former),
		ResourceNamesUnsubscribe: Without(former, names),
	})
}

func (s *DeltaStream) Receive() (*Update, error) {
	response, err := s.ads.Recv()
	if err != nil {
		return nil, err
	}
	received := &Update{Kind: response.TypeUrl, nonce: response.Nonce, Resources: map[string]Resource{}, Removed: response.RemovedResources}
	for _, resource := range response.Resources {
		aliases := slices.Sorted(slices.Values(resource.Aliases))
		received.Resources[resource.Name] = Resource{resource.Resource.GetValue(), aliases, resource.Version}
	}
	return received, nil
}

func (s *DeltaStream) Accept(received *Update, _ []string) error {
	return s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: received.Kind, ResponseNonce: received.nonce})
}

func (s *DeltaStream) Reject(received *Update, _ []string, words string) error {
	return s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: received.Kind, ResponseNonce: received.nonce, ErrorDetail: invalid(words)})
}

func invalid(words string) *status.Status {
	return &status.Status{Code: int32(codes.InvalidArgument), Message: words}
}

// sotwStream tells all names of a kind each time, with the version and nonce of the last answer.
type sotwStream struct {
	ads  discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *core.Node
	// The version and the nonce of each kind.
	last map[string][2]string
}

func (s *sotwStream) send(kind string, names []string) error {
	node := s.node
	s.node = nil
	last := s.last[kind]
	return s.ads.Send(&discovery.DiscoveryRequest{
		Node: node, TypeUrl: kind, ResourceNames: withoutWildcard(names), VersionInfo: last[0], ResponseNonce: last[1],
	})
}

func (s *sotwStream) Subscribe(kind string, names, _ []string) error {
	return s.send(kind, names)
}

func (s *sotwStream) Receive() (*Update, error) {
	response, err := s.ads.Recv()
	if err != nil {
		return nil, err
	}
	received := &Update{Kind: response.TypeUrl, version: response.VersionInfo, nonce: response.Nonce, Resources: map[string]Resource{}}
	received.IsWhole = slices.Contains([]string{Clusters, Listeners, NameTables}, received.Kind)
	for _, packed := range response.Resources {
		body := packed.Value
		var wrapper discovery.Resource
		if packed.MessageIs(&wrapper) {
			if err := proto.Unmarshal(body, &wrapper); err != nil {
				return nil, err
			}
			body = wrapper.Resource.GetValue()
		}
		received.Resources[nameOf(received.Kind, body)] = Resource{Body: body}
	}
	return received, nil
}

func (s *sotwStream) Accept(received *Update, names []string) error {
	s.last[received.Kind] = [2]string{received.version, received.nonce}
	return s.send(received.Kind, names)
}

func (s *sotwStream) Reject(received *Update, names []string, words string) error {
	accepted := s.last[received.Kind][0]
	s.last[received.Kind] = [2]string{accepted, received.nonce}
	return s.ads.Send(&discovery.DiscoveryRequest{
		TypeUrl: received.Kind, ResourceNames: withoutWildcard(names), VersionInfo: accepted, ResponseNonce: received.nonce,
		ErrorDetail: invalid(words),
	})
}

// nameOf is the first field, which is the name of all resources but the name table.
func nameOf(kind string, body []byte) string {
	for len(body) > 0 && kind != NameTables {
		number, wire, length := protowire.ConsumeTag(body)
		body = body[max(length, 0):]
		if number == 1 && wire == protowire.BytesType {
			name, _ := protowire.ConsumeString(body)
			return name
		}
		length = protowire.ConsumeFieldValue(number, wire, body)
		if length < 0 {
			break
		}
		body = body[length:]
	}
	return ""
}

func withoutWildcard(names []string) []string {
	if slices.Equal(names, []string{Wildcard}) {
		return nil
	}
	return names
}

// Without are the names that are not among others.
func Without(names, others []string) []string {
	var left []string
	for _, name := range names {
		if !slices.Contains(others, name) {
			left = append(left, name)
		}
	}
	return left
}
