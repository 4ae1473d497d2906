package kernel

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
)

// TestTTLOfPodToItself: a pod's datagrams to its own published port, whose TTL ends at the host,
// are answered as by any router, and the port still leads to the pod afterwards.
func TestTTLOfPodToItself(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{"stateless": "add allow ip from any to any\n",
		"stateful": openRules} {
		t.Run(name, func(t *testing.T) {
			v := newCluster(t, rules)
			v.serve(v.a.Node, 80)
			v.publish(8080, 80)
			for i, to := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
				var c net.Conn
				v.must(v.a.Do(func() (err error) { c, err = net.Dial("udp", to); return err }))
				defer c.Close()
				v.must(setHops(c, i == 1, 1))
				v.must(c.SetDeadline(time.Now().Add(testTimeout)))
				_, err := c.Write([]byte("too far"))
				v.must(err)
				_, err = c.Read(make([]byte, 10))
				if !errors.Is(err, unix.EHOSTUNREACH) {
					t.Errorf("TTL 1 to %s: %v, not %v", to, err, unix.EHOSTUNREACH)
				}
				v.must(setHops(c, i == 1, 64))
				if err := echoWord(c, "word"); err != nil {
					t.Errorf("then to %s: %v", to, err)
				}
			}
			if n := v.drops(firewall.ReasonHopTTL); n != 2 {
				t.Errorf("%d packets were too far, not 2", n)
			}
		})
	}
}

// setHops sets the TTL of a socket that reports ICMP errors.
func setHops(c net.Conn, six bool, hops int) error {
	level, receive, limit := unix.IPPROTO_IP, unix.IP_RECVERR, unix.IP_TTL
	if six {
		level, receive, limit = unix.IPPROTO_IPV6, unix.IPV6_RECVERR, unix.IPV6_UNICAST_HOPS
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = errors.Join(unix.SetsockoptInt(int(fd), level, receive, 1),
			unix.SetsockoptInt(int(fd), level, limit, hops))
	})
	return errors.Join(err, set)
}
