package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// clients is a number of clients that ask the server for its file for as long as it is open, each
// time by a connection of its own. A few threads, which sit in the client's namespace for good,
// serve them all by epoll: a thread for each would be more than a process may have.
type clients struct {
	done, failed atomic.Int64 // requests
	stop         atomic.Bool
	threads      int
	ended        chan error // of each thread
	// told of every request that succeeded, by the thread that serves it; may be nil
	took func(began, now time.Time)
}

const (
	clientTimeout = 10 * time.Second      // how long one request may take
	clientPause   = 10 * time.Millisecond // after one that failed
	clientRequest = "GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	fileSize      = 1024
	clientAddrs   = 32
	perThread     = 15000
)

// clientAddr is one of the addresses of the clients.
func clientAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 1, byte(1 + i)}) }

// fileClient is one of the clients, and its request.
type fileClient struct {
	fd    int // -1 between two requests
	asked bool
	began time.Time // the request, or the pause after one that failed
	got   int       // bytes of the answer
	good  bool      // it says that all is well
}

// gather starts n clients. They take turns at the client's addresses, since one has too few ports
// for many.
func (b *bench) gather(n int, took func(began, now time.Time)) *clients {
	threads := (n + perThread - 1) / perThread
	c := &clients{ended: make(chan error, threads), threads: threads, took: took}
	for i := range threads {
		go func() {
			c.ended <- b.client.Do(func() error {
				// A table of files of its own, since root may be held to 20,000 of them; so the
				// thread ends with its goroutine.
				runtime.LockOSThread()
				if err := unix.Unshare(unix.CLONE_FILES); err != nil {
					return fmt.Errorf("a table of files: %w", err)
				}
				return c.run((n + i) / threads)
			})
		}()
	}
	return c
}

// close sends the clients home.
func (c *clients) close() error {
	c.stop.Store(true)
	var err error
	for range c.threads {
		err = errors.Join(err, <-c.ended)
	}
	return err
}

func (c *clients) run(n int) error {
	poll, err := unix.EpollCreate1(0)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	defer unix.Close(poll)
	server := &unix.SockaddrInet4{Port: 80, Addr: netip.MustParseAddr(serverAddr).As4()}
	all := make([]fileClient, n)
	for i := range all {
		all[i].fd = -1
	}
	defer func() {
		for i := range all {
			all[i].leave()
		}
	}()
	events, buf := make([]unix.EpollEvent, 256), make([]byte, 4096)
	var round time.Time // when all were looked at
	for !c.stop.Load() {
		if now := time.Now(); now.Sub(round) >= clientPause {
			round = now
			for i := range all {
				if err := c.look(&all[i], now, poll, i, server); err != nil {
					return err
				}
			}
		}
		k, err := unix.EpollWait(poll, events, int(clientPause/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(k, 0)] {
			v := &all[e.Fd]
			if v.fd < 0 {
				continue
			}
			over, err := v.proceed(buf)
			if !over {
				continue
			}
			now := time.Now()
			v.leave()
			if err != nil {
				c.failed.Add(1)
				v.began = now
				continue
			}
			c.done.Add(1)
			if c.took != nil {
				c.took(v.began, now)
			}
			if err := v.come(now, poll, int(e.Fd), server); err != nil {
				return err
			}
		}
	}
	return nil
}

// look begins a request for a visitor that has none, and ends one that takes too long.
func (c *clients) look(v *fileClient, now time.Time, poll, i int, server unix.Sockaddr) error {
	switch {
	case v.fd < 0 && now.Sub(v.began) >= clientPause:
		return v.come(now, poll, i, server)
	case v.fd >= 0 && now.Sub(v.began) > clientTimeout:
		v.leave()
		v.began = now
		c.failed.Add(1)
	}
	return nil
}

// come opens the connection of a visitor, the i-th.
func (v *fileClient) come(now time.Time, poll, i int, server unix.Sockaddr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a socket of the clients: %w", err)
	}
	*v = fileClient{fd: fd, began: now}
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	from := &unix.SockaddrInet4{Addr: clientAddr(i % clientAddrs).As4()}
	if err := unix.Bind(fd, from); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Connect(fd, server); err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect: %w", err)
	}
	return unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP |
			unix.EPOLLET&0xffffffff, Fd: int32(i)})
}

// proceed sends or reads what the socket allows, and reports whether the request is over.
func (v *fileClient) proceed(buf []byte) (over bool, err error) {
	if !v.asked {
		if _, err := unix.Write(v.fd, []byte(clientRequest)); err != nil {
			return err != unix.EAGAIN, err
		}
		v.asked = true
	}
	for {
		n, err := unix.Read(v.fd, buf)
		switch {
		case err == unix.EAGAIN:
			return false, nil
		case err != nil:
			return true, err
		case n > 0:
			if v.got == 0 {
				v.good = bytes.HasPrefix(buf[:n], []byte("HTTP/1.1 200 "))
			}
			v.got += n
		case !v.good || v.got < fileSize:
			return true, errors.New("not the file")
		default:
			return true, nil
		}
	}
}

func (v *fileClient) leave() {
	if v.fd >= 0 {
		unix.Close(v.fd)
		v.fd = -1
	}
}
