package main

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// Sockets here block, and their system calls are made without the scheduler's knowledge: a
// transaction is to cost the kernel's time and little else. cpu is where a thread is bound to, -1
// for anywhere.

// thread runs f on a thread of its own inside a node.
func thread(n *nstest.Node, cpu int, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- n.Do(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var old, set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &old); err != nil {
				return err
			}
			if set = old; cpu >= 0 {
				set.Zero()
				set.Set(cpu)
			}
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return err
			}
			defer unix.SchedSetaffinity(0, &old)
			// Whatever else the machine does is to disturb little.
			if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20); err != nil {
				return err
			}
			defer unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0)
			return f()
		})
	}()
	return done
}

func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	t := unix.NsecToTimeval(int64(5 * time.Second))
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &t); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// listen opens a listening socket inside a node.
func listen(n *nstest.Node, port uint16) (fd int, err error) {
	err = n.Do(func() error {
		if fd, err = socket(); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}); err != nil {
			return err
		}
		return unix.Listen(fd, 128)
	})
	return fd, err
}

func accept(l int) (int, error) {
	for {
		fd, _, err := unix.Accept(l)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func connect(to netip.AddrPort) (int, error) {
	fd, err := socket()
	if err != nil {
		return -1, err
	}
	err = unix.EINTR
	for err == unix.EINTR || err == unix.EALREADY { // a signal of the runtime's
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err != nil && err != unix.EISCONN {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

// pingPong echoes bytes until the other side ends.
func pingPong(fd int) {
	var b [1]byte
	for {
		if n, err := rawRead(fd, b[:]); n != 1 || err != 0 {
			return
		}
		if n, err := rawWrite(fd, b[:]); n != 1 || err != 0 {
			return
		}
	}
}

// pair is a client and a server.
type pair struct {
	from, on *nstest.Node
	to       netip.AddrPort // the address of the server
	port     uint16         // where `on` listens
	cpu      int            // of both threads
}

// transactions counts how often a byte goes there and back.
func (p pair) transactions(slice time.Duration) (float64, times, error) {
	l, err := listen(p.on, p.port)
	if err != nil {
		return 0, times{}, err
	}
	defer unix.Close(l)
	served := thread(p.on, p.cpu, func() error {
		fd, err := accept(l)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return err
		}
		pingPong(fd)
		return nil
	})
	all := make([]time.Duration, 0, 1<<18)
	var took time.Duration
	err = <-thread(p.from, p.cpu, func() error {
		fd, err := connect(p.to)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var b [1]byte
		begin := time.Now()
		last := begin
		for last.Sub(begin) < slice {
			rawWrite(fd, b[:])
			if n, err := rawRead(fd, b[:]); n != 1 || err != 0 {
				return fmt.Errorf("read: %d bytes, %w", n, err)
			}
			now := time.Now()
			all = append(all, now.Sub(last))
			last = now
		}
		took = last.Sub(begin)
		return nil
	})
	if err != nil {
		unix.Shutdown(l, unix.SHUT_RDWR)
	}
	if other := <-served; err == nil {
		err = other
	}
	if err != nil || len(all) == 0 {
		return 0, times{}, err
	}
	slices.Sort(all)
	return float64(len(all)) / took.Seconds(),
		times{all[len(all)*98/100], all[len(all)*99/100], all[len(all)*995/1000]}, nil
}

// stream measures bytes per second of one connection.
func (p pair) stream(slice time.Duration) (float64, times, error) {
	l, err := listen(p.on, p.port)
	if err != nil {
		return 0, times{}, err
	}
	defer unix.Close(l)
	var total int
	var took time.Duration
	served := thread(p.on, p.cpu, func() error {
		fd, err := accept(l)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		b := make([]byte, 256<<10)
		begin := time.Now()
		for {
			n, err := rawRead(fd, b)
			if n <= 0 || err != 0 {
				took = time.Since(begin)
				return nil
			}
			total += n
		}
	})
	err = <-thread(p.from, p.cpu, func() error {
		fd, err := connect(p.to)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		b := make([]byte, 128<<10)
		for begin := time.Now(); time.Since(begin) < slice; {
			if n, err := rawWrite(fd, b); n <= 0 {
				return fmt.Errorf("write: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		unix.Shutdown(l, unix.SHUT_RDWR)
	}
	if other := <-served; err == nil {
		err = other
	}
	if err != nil {
		return 0, times{}, err
	}
	return float64(total) / took.Seconds(), times{}, nil
}

// requests counts connections with a byte there and back.
func (p pair) requests(slice time.Duration) (float64, times, error) {
	l, err := listen(p.on, p.port)
	if err != nil {
		return 0, times{}, err
	}
	served := thread(p.on, p.cpu, func() error {
		for {
			fd, err := accept(l)
			if err != nil {
				return nil // the listener was shut down
			}
			pingPong(fd)
			unix.Close(fd)
		}
	})
	n := 0
	var took time.Duration
	err = <-thread(p.from, p.cpu, func() error {
		begin := time.Now()
		for took < slice {
			fd, err := connect(p.to)
			if err != nil {
				return err
			}
			var b [1]byte
			rawWrite(fd, b[:])
			got, errno := rawRead(fd, b[:])
			// A reset leaves no TIME_WAIT behind: ports would run out.
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			unix.Close(fd)
			if got != 1 {
				return fmt.Errorf("read: %d bytes, %w", got, errno)
			}
			n++
			took = time.Since(begin)
		}
		return nil
	})
	unix.Shutdown(l, unix.SHUT_RDWR)
	<-served
	unix.Close(l)
	if err != nil {
		return 0, times{}, err
	}
	return float64(n) / took.Seconds(), times{}, nil
}
