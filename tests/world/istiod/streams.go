package main

import (
	"context"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// Variant is the form of the protocol that a proxy speaks.
type Variant string

const (
	delta Variant = "delta"
	sotw  Variant = "sotw"
)

var wildcard = []string{"*"}

// Answer is a response in either variant.
type Answer struct {
	kind, version, nonce string
	resources            map[string][]byte
	removed              []string
	// Resources of the kind that are missing here are gone.
	isWhole bool
}

// Stream is an aggregated stream in either variant. The node goes with its first request only, as with Istio's Envoy.
type Stream interface {
	// subscribe replaces the names of a kind.
	subscribe(kind string, names []string) error
	receive() (*Answer, error)
	acknowledge(answer *Answer) error
	reject(answer *Answer) error
}

var rejected = &status.Status{Code: int32(codes.InvalidArgument), Message: "bad port"}

func openStream(ctx context.Context, connection *grpc.ClientConn, variant Variant, node *core.Node) (Stream, error) {
	client, names := discovery.NewAggregatedDiscoveryServiceClient(connection), map[string][]string{}
	if variant == sotw {
		stream, err := client.StreamAggregatedResources(ctx, grpc.WaitForReady(true))
		return &SotwStream{stream: stream, node: node, names: names, last: map[string]*Answer{}}, err
	}
	stream, err := client.DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	return &DeltaStream{stream: stream, node: node, names: names}, err
}

// DeltaStream tells changes of names, and is told changes of resources.
type DeltaStream struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   *core.Node
	names  map[string][]string
}

func (s *DeltaStream) send(request *discovery.DeltaDiscoveryRequest) error {
	request.Node, s.node = s.node, nil
	return s.stream.Send(request)
}

func (s *DeltaStream) subscribe(kind string, names []string) error {
	former := s.names[kind]
	s.names[kind] = names
	return s.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl:                  kind,
		ResourceNamesSubscribe:   without(names, former),
		ResourceNamesUnsubscribe: without(former, names),
	})
}

func (s *DeltaStream) receive() (*Answer, error) {
	response, err := s.stream.Recv()
	if err != nil {
		return nil, err
	}
	answer := &Answer{
		kind: response.TypeUrl, nonce: response.Nonce,
		resources: map[string][]byte{}, removed: response.RemovedResources,
	}
	for _, resource := range response.Resources {
		answer.resources[resource.Name] = resource.Resource.GetValue()
	}
	return answer, nil
}

func (s *DeltaStream) acknowledge(answer *Answer) error {
	return s.send(&discovery.DeltaDiscoveryRequest{TypeUrl: answer.kind, ResponseNonce: answer.nonce})
}

func (s *DeltaStream) reject(answer *Answer) error {
	return s.send(&discovery.DeltaDiscoveryRequest{TypeUrl: answer.kind, ResponseNonce: answer.nonce, ErrorDetail: rejected})
}

// SotwStream tells all names of a kind each time, with the version and nonce of the last answer. Clusters and listeners are told whole;
// of endpoints and routes an answer has some of those that were asked for.
type SotwStream struct {
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node   *core.Node
	names  map[string][]string
	last   map[string]*Answer
}

func (s *SotwStream) send(kind string) error {
	request := &discovery.DiscoveryRequest{TypeUrl: kind, ResourceNames: s.names[kind]}
	if last := s.last[kind]; last != nil {
		request.VersionInfo, request.ResponseNonce = last.version, last.nonce
	}
	request.Node, s.node = s.node, nil
	return s.stream.Send(request)
}

// subscribe has no names for the wildcard, as Envoy.
func (s *SotwStream) subscribe(kind string, names []string) error {
	if slices.Equal(names, wildcard) {
		names = nil
	}
	s.names[kind] = names
	return s.send(kind)
}

func (s *SotwStream) receive() (*Answer, error) {
	response, err := s.stream.Recv()
	if err != nil {
		return nil, err
	}
	answer := &Answer{
		kind: response.TypeUrl, version: response.VersionInfo, nonce: response.Nonce,
		resources: map[string][]byte{}, isWhole: response.TypeUrl == clusters || response.TypeUrl == listeners,
	}
	for _, resource := range response.Resources {
		answer.resources[nameOf(resource.Value)] = resource.Value
	}
	return answer, nil
}

func (s *SotwStream) acknowledge(answer *Answer) error {
	s.last[answer.kind] = answer
	return s.send(answer.kind)
}

func (s *SotwStream) reject(answer *Answer) error {
	accepted := ""
	if last := s.last[answer.kind]; last != nil {
		accepted = last.version
	}
	s.last[answer.kind] = &Answer{version: accepted, nonce: answer.nonce}
	return s.stream.Send(&discovery.DiscoveryRequest{
		TypeUrl: answer.kind, ResourceNames: s.names[answer.kind],
		VersionInfo: accepted, ResponseNonce: answer.nonce, ErrorDetail: rejected,
	})
}

// nameOf reads field 1, which is the name of a cluster, of its endpoints, of a listener and of a route configuration.
func nameOf(body []byte) string {
	for len(body) > 0 {
		number, kind, length := protowire.ConsumeTag(body)
		if length < 0 {
			break
		}
		body = body[length:]
		if number == 1 && kind == protowire.BytesType {
			name, length := protowire.ConsumeString(body)
			check(protowire.ParseError(length))
			return name
		}
		length = protowire.ConsumeFieldValue(number, kind, body)
		check(protowire.ParseError(length))
		body = body[length:]
	}
	panic("a resource without a name")
}
