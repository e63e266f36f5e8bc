package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// everyone is the group of all nodes.
type everyone struct{}

func (everyone) ID(*core.Node) string { return "everyone" }

// resources reads an Any in JSON from each line of a file.
func resources(path string) (map[string][]types.Resource, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string][]types.Resource{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var packed anypb.Any
		if err := protojson.Unmarshal(lines.Bytes(), &packed); err != nil {
			return nil, err
		}
		resource, err := packed.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		found[packed.TypeUrl] = append(found[packed.TypeUrl], resource)
	}
	return found, lines.Err()
}

// serve serves the resources of a file by the snapshot cache of go-control-plane.
func serve(port, path string) error {
	found, err := resources(path)
	if err != nil {
		return err
	}
	snapshot, err := cache.NewSnapshot("1", found)
	if err != nil {
		return err
	}
	snapshots := cache.NewSnapshotCache(false, everyone{}, nil)
	ctx := context.Background()
	if err := snapshots.SetSnapshot(ctx, "everyone", snapshot); err != nil {
		return err
	}
	socket, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	plane := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(plane, server.NewServer(ctx, snapshots, nil))
	return plane.Serve(socket)
}

// answer serves backends that answer their ports.
func answer(ports []string) error {
	ended := make(chan error)
	for _, port := range ports {
		socket, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			return err
		}
		reply := func(_ any, stream grpc.ServerStream) error {
			var request []byte
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			response := []byte(port)
			return stream.SendMsg(&response)
		}
		backend := grpc.NewServer(grpc.ForceServerCodec(asIs{}), grpc.UnknownServiceHandler(reply))
		go func() { ended <- backend.Serve(socket) }()
	}
	fmt.Println("ready")
	return <-ended
}
