//go:build netkit

package kernel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// BenchmarkNetkit compares pods with netkits and pods with veths in short rounds, one after the
// other. It measures what a round trip of a small datagram takes, and 4 MiB over TCP, the least of
// all rounds.
func BenchmarkNetkit(b *testing.B) {
	nstest.RequireRoot(b)
	err := nstest.New(b).Node("try").Netlink().AddNetkit(nl.Veth{Name: "nk", PeerName: "nkp"})
	if errors.Is(err, nl.ErrNoNetkit) {
		b.Skip(err)
	}
	kinds := []*cluster{newClusterOf(b, hundredRules(), false),
		newClusterOf(b, hundredRules(), true)}
	for _, path := range []struct {
		name     string
		from, to func(*cluster) *nstest.Node
		address  string
	}{
		{"pod to pod", (*cluster).nodeA, (*cluster).nodeB, "10.88.0.3"},
		{"pod to NIC", (*cluster).nodeA, (*cluster).nodeOutside, "192.0.2.2"},
		{"NIC to pod", (*cluster).nodeOutside, (*cluster).nodeA, "10.88.0.2"},
	} {
		b.Run(path.name, func(b *testing.B) {
			var trip, bulk [2]time.Duration
			var calls [2]net.Conn
			var streams [2]net.Conn
			for i, v := range kinds {
				v.t = b
				v.serve(path.to(v), 70)
				var err error
				calls[i], err = path.from(v).DialContext(b.Context(), "udp", path.address+":70")
				v.must(err)
				streams[i], err = dialFrom(path.from(v), path.address+":70", testTimeout)
				v.must(err)
				trip[i], bulk[i] = time.Hour, time.Hour
			}
			for range 20 {
				for i, v := range kinds {
					took, err := trips(calls[i], 200)
					v.must(err)
					trip[i] = min(trip[i], took)
					took, err = transfer(streams[i], 4<<20)
					v.must(err)
					bulk[i] = min(bulk[i], took)
				}
			}
			for i, name := range []string{"veth", "netkit"} {
				b.ReportMetric(float64(trip[i].Nanoseconds())/200/1000, name+"-us/trip")
				b.ReportMetric(float64(bulk[i].Microseconds())/1000, name+"-ms/4MiB")
				calls[i].Close()
				streams[i].Close()
			}
			b.ReportMetric(float64(trip[1])/float64(trip[0]), "trip-ratio")
			b.ReportMetric(float64(bulk[1])/float64(bulk[0]), "bulk-ratio")
		})
	}
}

func (v *cluster) nodeA() *nstest.Node       { return v.a.Node }
func (v *cluster) nodeB() *nstest.Node       { return v.b.Node }
func (v *cluster) nodeOutside() *nstest.Node { return v.outside }

// trips sends words that come back, one after the other.
func trips(c net.Conn, n int) (time.Duration, error) {
	begin := time.Now()
	for i := range n {
		if err := echoWord(c, fmt.Sprint("word ", i)); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// transfer sends bytes, which come back.
func transfer(c net.Conn, n int) (time.Duration, error) {
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return 0, err
	}
	begin, sent := time.Now(), make(chan error, 1)
	go func() { _, err := c.Write(make([]byte, n)); sent <- err }()
	_, err := io.CopyN(io.Discard, c, int64(n))
	return time.Since(begin), errors.Join(err, <-sent)
}
