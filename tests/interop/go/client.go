package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	// grpc-go says that it reads gzip only with this.
	_ "google.golang.org/grpc/encoding/gzip"
	_ "google.golang.org/grpc/xds"
)

const (
	service = "/kit.Which/"
	// pause is the time between two calls of a channel.
	pause = 20 * time.Millisecond
)

// asIs takes messages as bytes.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (asIs) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func open(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

func reach(ctx context.Context, channel *grpc.ClientConn, method string, options ...grpc.CallOption) (string, error) {
	var request, response []byte
	err := channel.Invoke(ctx, service+method, &request, &response, append(options, grpc.ForceCodec(asIs{}))...)
	return string(response), err
}

// loop calls on each of the channels all the time, and prints the result of each call: a port, or the code of a status. A channel is
// NAME,TARGET,METHOD,AUTHORITY, with the name in the header `name`.
func loop(channels []string) error {
	for _, words := range channels {
		parts := strings.Split(words, ",")
		name, target, method, authority := parts[0], parts[1], parts[2], parts[3]
		var options []grpc.DialOption
		if authority != "" {
			options = append(options, grpc.WithAuthority(authority))
		}
		channel, err := open(target, options...)
		if err != nil {
			return err
		}
		go func() {
			for ; ; time.Sleep(pause) {
				ctx := metadata.AppendToOutgoingContext(context.Background(), "name", name)
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				reached, err := reach(ctx, channel, method)
				cancel()
				if err != nil {
					reached = fmt.Sprintf("%d %v", status.Code(err), err)
				}
				fmt.Println(name, reached)
			}
		}()
	}
	select {}
}

// answered makes this number of calls, and waits for all; prints how many were answered, and the time. A call waits for its resources.
func answered(count int, one func(context.Context, int) error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var good atomic.Int64
	var calls sync.WaitGroup
	for number := range count {
		calls.Go(func() {
			if err := one(ctx, number); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			good.Add(1)
		})
	}
	calls.Wait()
	fmt.Printf("answered %d in %.3f\n", good.Load(), time.Since(begun).Seconds())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// many makes a call to each of this number of targets.
func many(target string, count int) error {
	channels := make([]*grpc.ClientConn, count)
	for number := range channels {
		channel, err := open(fmt.Sprintf("%s-%d", target, number))
		if err != nil {
			return err
		}
		channels[number] = channel
	}
	answered(count, func(ctx context.Context, number int) error {
		_, err := reach(ctx, channels[number], "Port", grpc.WaitForReady(true))
		return err
	})
	return nil
}

// each makes this number of calls by one channel, each with another number in the header `number`.
func each(target string, count int) error {
	channel, err := open(target)
	if err != nil {
		return err
	}
	answered(count, func(ctx context.Context, number int) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "number", strconv.Itoa(number))
		_, err := reach(ctx, channel, "Port", grpc.WaitForReady(true))
		return err
	})
	return nil
}
