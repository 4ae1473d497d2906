package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

func be16(b []byte) uint16    { return binary.BigEndian.Uint16(b) }
func be32(b []byte) uint32    { return binary.BigEndian.Uint32(b) }
func idOf(b []byte) uint64    { return binary.BigEndian.Uint64(b) }
func idBytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// longTimeout is for what has to come and is not measured, on however busy a machine.
const longTimeout = 5 * time.Minute

const (
	// tcpTimeout is how long a connection may take: two SYNs may be lost.
	tcpTimeout = 5 * time.Second
	// udpTries and udpTimeout are those of a resolver.
	udpTries   = 3
	udpTimeout = time.Second
	// late is when an operation has lost a packet: the kernel sends a SYN again after a second.
	late = 900 * time.Millisecond
)

// work is something that a legitimate user does again and again.
type work struct {
	name string
	from func(*testbed) *nstest.Node
	// network and addr are what it talks to; local is the address that it talks from, "" for any.
	network, addr, local string
	pods                 bool // needs pods
}

func outsideNode(w *testbed) *nstest.Node { return w.outside }
func hostNode(w *testbed) *nstest.Node    { return w.host }
func clientNode(w *testbed) *nstest.Node  { return w.client }

// The work of all floods.
var (
	tcpIn     = work{"TCP in", outsideNode, "tcp", "10.66.0.1:80", userAddr, false}
	tcpOut    = work{"TCP out", hostNode, "tcp", "10.66.0.3:80", "", false}
	udpIn     = work{"UDP in", outsideNode, "udp", "10.66.0.1:53", userAddr, false}
	udpOut    = work{"UDP out", hostNode, "udp", "10.66.0.3:53", "", false}
	published = work{"TCP published", outsideNode, "tcp", "10.66.0.1:8080", userAddr, true}
	pubDNS    = work{"UDP published", outsideNode, "udp", "10.66.0.1:8053", userAddr, true}
	masqTCP   = work{"TCP masqueraded", clientNode, "tcp", "10.66.0.3:80", "", true}
	masqDNS   = work{"UDP masqueraded", clientNode, "udp", "10.66.0.3:53", "", true}
)

// tally counts what became of the operations of one kind of work.
type tally struct {
	ok, failed, slow atomic.Int64
	took             time.Duration
	why              atomic.Value // the last error's text and time
}

func (t *tally) rate() float64 { return float64(t.ok.Load()) / t.took.Seconds() }

// dialer is one that talks from the work's address. Its port is chosen by connect, which takes one
// again that a closed connection to the same server has had. bind would not, and there would be
// none left after a minute.
func (k work) dialer(timeout time.Duration) net.Dialer {
	d := net.Dialer{Timeout: timeout}
	if k.local == "" {
		return d
	}
	if k.network == "udp" {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(k.local)}
		return d
	}
	d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(k.local)}
	d.Control = func(_, _ string, c syscall.RawConn) (err error) {
		controlled := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		})
		return errors.Join(controlled, err)
	}
	return d
}

// do is one operation. Each has a socket of its own.
func (k work) do() error {
	d := k.dialer(tcpTimeout)
	c, err := d.Dial(k.network, k.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	tries, timeout := 1, tcpTimeout
	if k.network == "udp" {
		tries, timeout = udpTries, udpTimeout
	}
	question, answer := make([]byte, 8), make([]byte, 8)
	for range tries {
		c.SetDeadline(time.Now().Add(timeout))
		if _, err = c.Write(question); err != nil {
			continue
		}
		if _, err = io.ReadFull(c, answer); err == nil {
			return nil
		}
	}
	return err
}

// run does the work with some workers at a rate at most, until a time or until over is closed, and
// once in any case: the machine may be so busy that the time is over before it begins.
func (k work) run(w *testbed, workers, rate int, until time.Time, over <-chan struct{}) *tally {
	t := &tally{}
	began := time.Now()
	var turn atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			// A thread in the namespace for good: each socket is made there.
			err := k.from(w).Do(func() error {
				for {
					n := time.Duration(turn.Add(1) - 1)
					due := began.Add(n * time.Second / time.Duration(rate))
					if n > 0 && (!due.Before(until) || !time.Now().Before(until)) {
						return nil // also one that cannot keep up with its rate
					}
					if n > 0 {
						select {
						case <-over:
							return nil
						case <-time.After(time.Until(due)):
						}
					}
					t.count(k.do)
				}
			})
			if err != nil {
				t.failed.Add(1)
			}
		})
	}
	wg.Wait()
	t.took = time.Since(began)
	return t
}

func (t *tally) count(do func() error) {
	began := time.Now()
	switch err := do(); {
	case err != nil:
		t.failed.Add(1)
		t.why.Store(time.Now().Format("15:04:05.000 ") + err.Error())
	default:
		t.ok.Add(1)
		if time.Since(began) > late {
			t.slow.Add(1)
		}
	}
}

// together runs several kinds of work at the same time, until a time or until over is closed.
func together(w *testbed, all []work, until time.Time, over <-chan struct{}) []*tally {
	tallies := make([]*tally, len(all))
	var wg sync.WaitGroup
	for i, k := range all {
		wg.Go(func() { tallies[i] = k.run(w, workers, workRate, until, over) })
	}
	wg.Wait()
	return tallies
}

// keptConn is a connection that stays open and over which a byte goes there and back all the time.
type keptConn struct {
	work   work
	id     uint64
	conn   net.Conn
	local  net.Addr
	broken atomic.Bool
	why    atomic.Value // how and when it broke
}

// keep opens n connections of each kind of TCP work and keeps them busy until stop is closed.
func keep(w *testbed, all []work, n int, stop <-chan struct{}) ([]*keptConn, error) {
	var list []*keptConn
	for _, k := range all {
		if k.network != "tcp" {
			continue
		}
		for range n {
			c := &keptConn{work: k, id: uint64(len(list) + 1)}
			err := k.from(w).Do(func() (err error) {
				d := k.dialer(longTimeout)
				c.conn, err = d.Dial("tcp", k.addr)
				return err
			})
			if err != nil {
				return list, fmt.Errorf("%s: %w", k.name, err)
			}
			c.local = c.conn.LocalAddr()
			if err := c.beat(idBytes(c.id)); err != nil {
				return list, fmt.Errorf("%s: %w", k.name, err)
			}
			list = append(list, c)
			go c.run(stop)
		}
	}
	return list, nil
}

// keptTimeout is how long a byte may take there and back.
const keptTimeout = 20 * time.Second

func (c *keptConn) beat(b []byte) error {
	c.conn.SetDeadline(time.Now().Add(keptTimeout))
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c.conn, b)
	return err
}

func (c *keptConn) run(stop <-chan struct{}) {
	b := make([]byte, 64)
	for {
		select {
		case <-stop:
			c.conn.Close()
			return
		case <-time.After(50 * time.Millisecond):
		}
		if err := c.beat(b); err != nil {
			c.why.Store(time.Now().Format("15:04:05.000 ") + err.Error())
			c.broken.Store(true)
			return
		}
	}
}

// lost counts the connections that broke.
func lost(list []*keptConn) (n int) {
	for _, c := range list {
		if c.broken.Load() {
			n++
		}
	}
	return n
}
