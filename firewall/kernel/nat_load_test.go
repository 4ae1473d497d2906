package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
)

// Real senders and receivers through masquerade and published ports, as fast as they are asked to.

// loadTime is how long each takes.
const loadTime = 3 * time.Second

// usual are the ports and the cap that a node has by default.
func (v *cluster) usual() {
	v.t.Helper()
	v.must(v.engine.SetMasquerade(forward.Masquerade{Sources: podRanges, Except: podRanges,
		Ports: []forward.PortRange{{First: 1024, Last: 32767}, {First: 61000, Last: 65535}}}))
}

// quiet waits until the table is as empty as before.
func (v *cluster) quiet(t *testing.T, most int) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < testTimeout {
		s, err := v.engine.Stats()
		v.must(err)
		if s.States <= most {
			return time.Since(began)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("the table did not empty")
	return time.Since(began)
}

// TestLongManyQueriesToOneResolver asks 3,000 questions a second, each from a socket of its own:
// every one is answered.
func TestLongManyQueriesToOneResolver(t *testing.T) {
	t.Parallel()
	const rate = 3000
	v := newCluster(t, natRules)
	v.usual()
	server, err := v.outside.ListenPacket("udp4", "192.0.2.2:53")
	v.must(err)
	defer server.Close()
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			server.WriteTo(b[:n], from)
		}
	}()
	var lost, asked atomic.Int64
	v.must(v.a.Do(func() error {
		end, next := time.Now().Add(loadTime), time.Now()
		b := make([]byte, 64)
		for time.Now().Before(end) {
			next = next.Add(time.Second / rate)
			time.Sleep(time.Until(next))
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			to := &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 2}}
			wait := unix.Timeval{Sec: int64(testTimeout / time.Second)}
			err = errors.Join(unix.Connect(fd, to),
				unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
			if err != nil {
				return err
			}
			asked.Add(1)
			if _, err := unix.Write(fd, b[:20]); err != nil {
				lost.Add(1)
			} else if _, err := unix.Read(fd, b); err != nil {
				lost.Add(1)
			}
			unix.Close(fd)
		}
		return nil
	}))
	s, err := v.engine.Stats()
	v.must(err)
	refused := natRefused(t, v)
	t.Logf("%d questions in %v, %d lost, %d refused; %d translations, %d evicted", asked.Load(),
		loadTime, lost.Load(), refused, s.Translations.Now, s.Translations.Evicted)
	if lost.Load() != 0 || refused != 0 {
		t.Errorf("%d of %d questions were lost, %d packets refused", lost.Load(), asked.Load(),
			refused)
	}
	t.Logf("the table was empty again after %v", v.quiet(t, 20))
}

func natRefused(t *testing.T, v *cluster) (n uint64) {
	all, err := v.engine.Decisions()
	v.must(err)
	for d, c := range all {
		switch d.Reason {
		case firewall.ReasonNATPorts, firewall.ReasonStatesFull, firewall.ReasonHalfOpenFull,
			firewall.ReasonHalfOpenSource:
			n += c.Packets
		}
	}
	return n
}

// TestLongManyShortConnections opens and closes as many connections as the machine can, at most
// 4,000 a second. They lead from a pod to one port outside, and from outside to one published port.
// None is refused.
func TestLongManyShortConnections(t *testing.T) {
	t.Parallel()
	v := newCluster(t, natRules)
	v.usual()
	v.publish(8080, 80)
	for _, c := range []struct {
		what       string
		from, at   *nstest.Node
		listen, to string
		sources    []string
	}{
		{"masquerade", v.a.Node, v.outside, "192.0.2.2:8000", "192.0.2.2:8000",
			[]string{"10.88.0.2"}},
		{"published port", v.outside, v.a.Node, "10.88.0.2:80", "192.0.2.1:8080",
			[]string{"192.0.2.2"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			v.must(c.from.SetSysctl("net.ipv4.ip_local_port_range", "1024 65535"))
			v.must(c.from.SetSysctl("net.ipv4.tcp_tw_reuse", "1"))
			l, err := c.at.Listen("tcp4", c.listen)
			v.must(err)
			defer l.Close()
			go func() {
				for {
					s, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						b := make([]byte, 8)
						s.Read(b)
						s.Write(b)
						s.Read(b) // until the client has closed
						s.Close()
					}()
				}
			}()
			before, err := v.engine.Stats()
			v.must(err)
			refused := natRefused(t, v)
			var made, failed atomic.Int64
			var first sync.Once
			tokens := make(chan struct{}, 100)
			var work sync.WaitGroup
			for range 8 {
				work.Go(func() {
					for range tokens {
						err := shortCall(c.from, c.to)
						made.Add(1)
						if err != nil {
							failed.Add(1)
							first.Do(func() { t.Logf("%v", err) })
						}
					}
				})
			}
			began := time.Now()
			for n := 0; time.Since(began) < loadTime; {
				if due := int(time.Since(began).Seconds() * 4000); n < due {
					tokens <- struct{}{}
					n++
					continue
				}
				time.Sleep(time.Millisecond)
			}
			close(tokens)
			work.Wait()
			s, err := v.engine.Stats()
			v.must(err)
			more := natRefused(t, v) - refused
			t.Logf("%d connections in %v, %d failed, %d packets refused; then %d places, %d "+
				"translations, %d evicted", made.Load(), time.Since(began), failed.Load(), more,
				s.States, s.Translations.Now, s.Translations.Evicted-before.Translations.Evicted)
			if failed.Load() != 0 || more != 0 {
				t.Errorf("%d connections failed, %d packets were refused", failed.Load(), more)
			}
			t.Logf("the table is as before after %v", v.quiet(t, before.States+10))
		})
	}
}

// shortCall makes a connection, says a word, hears it and closes.
func shortCall(n *nstest.Node, to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := n.DialContext(ctx, "tcp4", to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := c.Write([]byte("a word  ")); err != nil {
		return err
	}
	b := make([]byte, 8)
	if _, err := c.Read(b); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}
