package kernel

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"
)

// TestLargestDatagramsToOwnPorts: the largest datagrams of IPv6, which do not fit the loopback's
// MTU, reach a published port of the host from the host, and come back; as they do at a port of the
// host's own (the control).
func TestLargestDatagramsToOwnPorts(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.serve(v.host, 81)
	v.publish(8080, 80)
	for _, c := range []struct {
		address string
		sizes   []int
	}{
		{"[2001:db8::1]", []int{65487, 65488, 65489, 65500, 65527}},
		{"[::1]", []int{65488, 65489, 65527}},
		{"127.0.0.1", []int{65507}},
	} {
		for _, port := range []int{81, 8080} {
			for _, size := range c.sizes {
				t.Run(fmt.Sprint(c.address, ":", port, " ", size), func(t *testing.T) {
					u, err := v.host.DialContext(context.Background(), "udp",
						fmt.Sprint(c.address, ":", port))
					if err != nil {
						t.Fatal(err)
					}
					defer u.Close()
					text := bytes.Repeat([]byte("much to say "), size/12+1)[:size]
					if _, err := u.Write(text); err != nil {
						t.Fatal(err)
					}
					u.SetReadDeadline(time.Now().Add(patience))
					b := make([]byte, 1<<16)
					if n, err := u.Read(b); err != nil || !bytes.Equal(b[:n], text) {
						t.Errorf("%d bytes came back: %v", n, err)
					}
				})
			}
		}
	}
}
