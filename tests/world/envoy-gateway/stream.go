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
	"google.golang.org/protobuf/proto"
)

const wildcard = "*"

// update is a response in either variant.
type update struct {
	kind, version, nonce string
	bodies               map[string][]byte
	removed              []string
	// A name that is not among the bodies does not exist.
	isWhole bool
}

// stream speaks one variant of ADS.
type stream interface {
	// subscribe asks for names in place of the former ones.
	subscribe(kind string, names, former []string) error
	receive() (*update, error)
	// accept is the ACK of an update, with the names of its type.
	accept(received *update, names []string) error
	// reject is the NACK of an update.
	reject(received *update, names []string) error
}

func openStream(ctx context.Context, connection *grpc.ClientConn, node *core.Node, isDelta bool) (stream, error) {
	client := discovery.NewAggregatedDiscoveryServiceClient(connection)
	if isDelta {
		ads, err := client.DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
		return &deltaStream{ads, node}, err
	}
	ads, err := client.StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	return &sotwStream{ads, node, map[string][2]string{}}, err
}

// deltaStream sends the node with the first request only, as Envoy does; likewise sotwStream.
type deltaStream struct {
	ads  discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node *core.Node
}

func (s *deltaStream) subscribe(kind string, names, former []string) error {
	node := s.node
	s.node = nil
	return s.ads.Send(&discovery.DeltaDiscoveryRequest{
		Node: node, TypeUrl: kind,
		ResourceNamesSubscribe:   without(names, former),
		ResourceNamesUnsubscribe: without(former, names),
	})
}

func (s *deltaStream) receive() (*update, error) {
	response, err := s.ads.Recv()
	if err != nil {
		return nil, err
	}
	received := &update{kind: response.TypeUrl, nonce: response.Nonce, bodies: map[string][]byte{}, removed: response.RemovedResources}
	for _, resource := range response.Resources {
		received.bodies[resource.Name] = resource.Resource.GetValue()
	}
	return received, nil
}

func (s *deltaStream) accept(received *update, _ []string) error {
	return s.ads.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: received.kind, ResponseNonce: received.nonce})
}

func (s *deltaStream) reject(received *update, _ []string) error {
	return s.ads.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: received.kind, ResponseNonce: received.nonce, ErrorDetail: invalid(),
	})
}

func invalid() *status.Status {
	return &status.Status{Code: int32(codes.InvalidArgument), Message: "bad port"}
}

type sotwStream struct {
	ads  discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *core.Node
	// The version and the nonce of each type.
	last map[string][2]string
}

func (s *sotwStream) send(kind string, names []string) error {
	node := s.node
	s.node = nil
	if slices.Equal(names, []string{wildcard}) {
		names = nil
	}
	last := s.last[kind]
	return s.ads.Send(&discovery.DiscoveryRequest{
		Node: node, TypeUrl: kind, ResourceNames: names, VersionInfo: last[0], ResponseNonce: last[1],
	})
}

func (s *sotwStream) subscribe(kind string, names, _ []string) error {
	return s.send(kind, names)
}

func (s *sotwStream) receive() (*update, error) {
	response, err := s.ads.Recv()
	if err != nil {
		return nil, err
	}
	received := &update{kind: response.TypeUrl, version: response.VersionInfo, nonce: response.Nonce, bodies: map[string][]byte{}}
	received.isWhole = received.kind == clusters || received.kind == listeners
	for _, packed := range response.Resources {
		body := packed.Value
		var wrapper discovery.Resource
		if packed.MessageIs(&wrapper) {
			check(proto.Unmarshal(body, &wrapper))
			body = wrapper.Resource.GetValue()
		}
		received.bodies[nameOf(body)] = body
	}
	return received, nil
}

func (s *sotwStream) accept(received *update, names []string) error {
	s.last[received.kind] = [2]string{received.version, received.nonce}
	return s.send(received.kind, names)
}

func (s *sotwStream) reject(received *update, names []string) error {
	return s.ads.Send(&discovery.DiscoveryRequest{
		TypeUrl: received.kind, ResourceNames: names, VersionInfo: s.last[received.kind][0], ResponseNonce: received.nonce,
		ErrorDetail: invalid(),
	})
}

// nameOf is the first field, which is the name in all types of the world.
func nameOf(body []byte) string {
	for len(body) > 0 {
		number, kind, length := protowire.ConsumeTag(body)
		body = body[max(length, 0):]
		if number == 1 && kind == protowire.BytesType {
			name, _ := protowire.ConsumeString(body)
			return name
		}
		length = protowire.ConsumeFieldValue(number, kind, body)
		if length < 0 {
			break
		}
		body = body[length:]
	}
	return ""
}

func without(names, others []string) []string {
	var left []string
	for _, name := range names {
		if _, isOther := slices.BinarySearch(others, name); !isOther {
			left = append(left, name)
		}
	}
	return left
}
