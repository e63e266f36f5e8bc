package main

import (
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	clusters  = resource.ClusterType
	endpoints = resource.EndpointType
	listeners = resource.ListenerType
	routes    = resource.RouteType
	secrets   = resource.SecretType
)

type reference struct{ kind, name string }

// references are the resources that a cluster or a listener names, at any depth.
func references(kind string, body []byte) []reference {
	var found []reference
	switch kind {
	case clusters:
		var read cluster.Cluster
		check(proto.Unmarshal(body, &read))
		walk(read.ProtoReflect(), &found)
	case listeners:
		var read listener.Listener
		check(proto.Unmarshal(body, &read))
		walk(read.ProtoReflect(), &found)
	}
	return found
}

func walk(message protoreflect.Message, found *[]reference) {
	switch read := message.Interface().(type) {
	case *anypb.Any:
		// A type that this program does not know has no references in this world.
		if packed, err := read.UnmarshalNew(); err == nil {
			walk(packed.ProtoReflect(), found)
		}
		return
	case *cluster.Cluster:
		if read.GetType() == cluster.Cluster_EDS {
			name := read.GetEdsClusterConfig().GetServiceName()
			if name == "" {
				name = read.Name
			}
			*found = append(*found, reference{endpoints, name})
		}
	case *hcm.Rds:
		*found = append(*found, reference{routes, read.RouteConfigName})
	case *tls.SdsSecretConfig:
		if read.GetSdsConfig().GetAds() != nil {
			*found = append(*found, reference{secrets, read.Name})
		}
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, one protoreflect.Value) bool {
					walk(one.Message(), found)
					return true
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for number := range value.List().Len() {
				walk(value.List().Get(number).Message(), found)
			}
		default:
			walk(value.Message(), found)
		}
		return true
	})
}
