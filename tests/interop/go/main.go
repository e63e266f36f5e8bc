// The client of grpc_peer.py for grpc-go, a control plane of go-control-plane and a backend. Resources are JSON, one a line.
//
// usage: peer loop CHANNEL...
//
//	peer many TARGET COUNT
//	peer each TARGET COUNT
//	peer serve PORT RESOURCES
//	peer answer PORT...
package main

import (
	"fmt"
	"os"
	"strconv"
)

func run(mode string, arguments []string) error {
	switch mode {
	case "loop":
		return loop(arguments)
	case "serve":
		return serve(arguments[0], arguments[1])
	case "answer":
		return answer(arguments)
	}
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	switch mode {
	case "many":
		return many(arguments[0], count)
	case "each":
		return each(arguments[0], count)
	}
	return fmt.Errorf("no mode is called %s", mode)
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
