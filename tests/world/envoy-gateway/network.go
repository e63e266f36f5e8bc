package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"
)

const inside = "WORLD_HAS_ITS_OWN_NETWORK"

// enterNetwork runs the program again in a network of its own, with nothing but loopback: Envoy Gateway listens on all addresses and on
// fixed ports, and could fetch an Envoy. It returns in the new process only.
func enterNetwork() {
	if os.Getenv(inside) != "" {
		check(os.Unsetenv(inside))
		check(raiseLoopback())
		return
	}
	again := exec.Command(must(os.Executable()), os.Args[1:]...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.Env = append(os.Environ(), inside+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		again.SysProcAttr.AmbientCaps = []uintptr{capNetAdmin}
	}
	if err := again.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "no network of its own for Envoy Gateway (%v): --host-network uses that of this host\n", err)
		os.Exit(1)
	}
	if again.Wait() != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

const capNetAdmin = 12

// raiseLoopback sets the interface `lo` up, with its addresses.
func raiseLoopback() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	// A struct ifreq: the name, and the flags at once after it.
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(request.name[:], "lo")
	if _, _, number := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); number != 0 {
		return number
	}
	return nil
}
