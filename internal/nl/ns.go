package nl

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// NS is a handle on a network namespace. The namespace lives at least as long as the handle.
type NS struct {
	file *os.File
	fd   int // of file, read once: reading it again would race with Close
}

// CurrentNS returns a handle on the namespace of the calling thread.
func CurrentNS() (*NS, error) { return OpenNS("/proc/thread-self/ns/net") }

// OpenNS opens a namespace by its file, for example /run/netns/NAME or /proc/PID/ns/net.
func OpenNS(path string) (*NS, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		f.Close()
		return nil, fmt.Errorf("%s is not a network namespace", path)
	}
	return &NS{file: f, fd: int(f.Fd())}, nil
}

// Close gives the handle back.
func (ns *NS) Close() error { return ns.file.Close() }

// Fd returns the file descriptor, valid until Close.
func (ns *NS) Fd() int { return ns.fd }

// ID returns an identifier that no other existing namespace has. The kernel may reuse it when this
// one is gone.
func (ns *NS) ID() (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		return "", fmt.Errorf("stat network namespace: %w", err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// Do runs f inside the namespace and waits for it. f runs on an OS thread of its own. Sockets and
// processes that it makes belong to the namespace and stay there, but goroutines that it starts do
// not run inside. A panic of f and an end by runtime.Goexit (t.Fatal) continue in the caller.
func (ns *NS) Do(f func() error) error {
	var (
		err      error
		panicked any
		returned bool
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		// The thread is unlocked only when it is back where it came from; otherwise it dies with
		// this goroutine.
		runtime.LockOSThread()
		home, e := CurrentNS()
		if e != nil {
			err, returned = e, true
			return
		}
		defer home.Close()
		if e := unix.Setns(ns.Fd(), unix.CLONE_NEWNET); e != nil {
			runtime.UnlockOSThread()
			err, returned = fmt.Errorf("enter network namespace: %w", e), true
			return
		}
		defer func() {
			if unix.Setns(home.Fd(), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
		}()
		defer func() { panicked = recover() }()
		err = f()
		returned = true
	}()
	<-done
	if panicked != nil {
		panic(panicked)
	}
	if !returned {
		runtime.Goexit()
	}
	return err
}

// Listen is net.Listen inside the namespace.
func (ns *NS) Listen(network, address string) (l net.Listener, err error) {
	err = ns.Do(func() (e error) { l, e = net.Listen(network, address); return e })
	return l, err
}

// ListenPacket is net.ListenPacket inside the namespace.
func (ns *NS) ListenPacket(network, address string) (c net.PacketConn, err error) {
	err = ns.Do(func() (e error) { c, e = net.ListenPacket(network, address); return e })
	return c, err
}

// DialContext is net.Dialer.DialContext inside the namespace. The address must be numeric: names
// would be looked up, and several addresses tried, by goroutines outside.
func (ns *NS) DialContext(ctx context.Context, network, address string) (c net.Conn, err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !numeric(host) {
		return nil, fmt.Errorf("dial %s inside a namespace: want a numeric address", address)
	}
	err = ns.Do(func() (e error) {
		c, e = new(net.Dialer).DialContext(ctx, network, address)
		return e
	})
	return c, err
}
