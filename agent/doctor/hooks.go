package doctor

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// loopback is the index of lo in every network namespace.
const loopback = 1

// inEmptyNamespace runs f on a thread of its own in a new network namespace, which ends with the
// thread.
func inEmptyNamespace(f func() (string, error)) (detail string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make a network namespace: %w", err)
			return
		}
		detail, err = f()
	}()
	<-done
	return detail, err
}

func namespaces() (string, error) {
	return inEmptyNamespace(func() (string, error) { return "", nil })
}

// ownPrograms loads everything that guards an interface, at its smallest, and attaches it to an
// empty namespace's loopback.
func ownPrograms() (string, error) {
	return inEmptyNamespace(func() (string, error) {
		o := firewall.DefaultOptions()
		o.MaxStates, o.MaxHalfOpen, o.MaxTracks = 64, 64, 64
		e, err := kernel.Open(kernel.Config{Options: o})
		if err != nil {
			return "", err
		}
		hook, err := e.Attach(loopback)
		return "attached by " + hook, errors.Join(err, e.Close())
	})
}

// passAll is a program that lets every packet through.
func passAll() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
}

// tcx attaches a program to both sides of an empty namespace's loopback.
func tcx() (string, error) {
	return inEmptyNamespace(func() (string, error) {
		p, err := passAll()
		if err != nil {
			return "", err
		}
		defer p.Close()
		for _, side := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: p, Attach: side})
			if err != nil {
				return "", err
			}
			l.Close()
		}
		return "", nil
	})
}

// netkit makes a pair in an empty namespace, and attaches a program to its inner end.
func netkit() (string, error) {
	return inEmptyNamespace(func() (string, error) {
		p, err := passAll()
		if err != nil {
			return "", err
		}
		defer p.Close()
		conn, err := nl.Open(nil)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if err := conn.AddNetkit(nl.Veth{Name: "nk", PeerName: "nkp"}); err != nil {
			return "", err
		}
		host, err := conn.LinkByName("nk")
		if err != nil {
			return "", err
		}
		l, err := link.AttachNetkit(link.NetkitOptions{Interface: host.Index, Program: p,
			Attach: ebpf.AttachNetkitPeer})
		if err != nil {
			return "", err
		}
		return "", l.Close()
	})
}

// clsact adds the qdisc to an empty namespace's loopback.
func clsact() (string, error) {
	return inEmptyNamespace(func() (string, error) { return "", addClsact(loopback) })
}

func addClsact(link int) error {
	conn, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.AddClsact(link)
}

// sockDiag asks for the TCP sockets of an empty namespace.
func sockDiag() (string, error) {
	return inEmptyNamespace(func() (string, error) {
		_, err := nl.TCPSockets(nil)
		return "", err
	})
}
