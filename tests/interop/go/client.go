package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	_ "google.golang.org/grpc/xds"
)

const method = "/kit.Which/Port"

// asIs takes messages as bytes.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (asIs) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func open(target string) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func reach(ctx context.Context, channel *grpc.ClientConn, options ...grpc.CallOption) (string, error) {
	var request, response []byte
	err := channel.Invoke(ctx, method, &request, &response, append(options, grpc.ForceCodec(asIs{}))...)
	return string(response), err
}

// call calls until it has reached each port that the input names, in turn.
func call(target string) error {
	channel, err := open(target)
	if err != nil {
		return err
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		port := input.Text()
		for end := time.Now().Add(25 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			reached, err := reach(ctx, channel)
			cancel()
			if err != nil {
				reached = "nobody"
			}
			if reached == port {
				fmt.Println("reached", port)
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("reached %s (%v), not %s", reached, err, port)
			}
		}
	}
	return nil
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
		_, err := reach(ctx, channels[number], grpc.WaitForReady(true))
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
		_, err := reach(ctx, channel, grpc.WaitForReady(true))
		return err
	})
	return nil
}
