package nl

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
)

// wireGuardModel is what the kernel makes of changes, in the plainest way.
type wireGuardModel struct {
	keys  [][32]byte
	peers map[[32]byte]WireGuardPeer
}

func (m *wireGuardModel) apply(c WireGuardChange) {
	p, there := m.peers[c.Key]
	switch {
	case c.Remove:
		delete(m.peers, c.Key)
		m.keys = slices.DeleteFunc(m.keys, func(k [32]byte) bool { return k == c.Key })
		return
	case !there && c.Only:
		return
	case !there:
		m.keys = append(m.keys, c.Key)
		p.Key = c.Key
	}
	if c.Endpoint.IsValid() {
		p.Endpoint = c.Endpoint
	}
	if c.Replace {
		p.AllowedIPs = nil
	}
	p.AllowedIPs = append(p.AllowedIPs, c.AllowedIPs...)
	m.peers[c.Key] = p
}

func (m *wireGuardModel) device() (d WireGuardDevice) {
	for _, k := range m.keys {
		d.Peers = append(d.Peers, m.peers[k])
	}
	return d
}

// decodeChange reads a change as the kernel would.
func decodeChange(t *testing.T, b []byte) (c WireGuardChange) {
	t.Helper()
	p, err := parsePeer(b)
	if err != nil {
		t.Fatal(err)
	}
	c.Key, c.Endpoint, c.AllowedIPs = p.Key, p.Endpoint, p.AllowedIPs
	for kind, value := range attrs(&b) {
		if kind == wgPeerFlags {
			f := native.Uint32(value)
			c.Remove, c.Replace, c.Only = f&wgRemove != 0, f&wgReplace != 0, f&wgOnly != 0
		}
	}
	return c
}

// TestWireGuardChanges: what is sent for some changes means the same as the changes, one after the
// other, also where a peer has more ranges than fit into an attribute.
func TestWireGuardChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	want := wireGuardModel{peers: map[[32]byte]WireGuardPeer{}}
	got := wireGuardModel{peers: map[[32]byte]WireGuardPeer{}}
	for range 200 {
		var changes []WireGuardChange
		for range 1 + r.IntN(4) {
			c := WireGuardChange{Key: [32]byte{byte(r.IntN(5))}, Remove: r.IntN(6) == 0,
				Only: r.IntN(3) == 0, Replace: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				a := [16]byte{0x20, 1, 15: byte(r.IntN(3))}
				c.Endpoint = netip.AddrPortFrom(netip.AddrFrom16(a), uint16(r.IntN(1<<16)))
				if r.IntN(2) == 0 {
					c.Endpoint = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1}), 51820)
				}
			}
			for range r.IntN(3) * r.IntN(1300) {
				a := [16]byte{0xfd, 1: byte(r.IntN(256)), 2: byte(r.IntN(256))}
				c.AllowedIPs = append(c.AllowedIPs, netip.PrefixFrom(netip.AddrFrom16(a), 64))
			}
			if c.Remove {
				c = WireGuardChange{Key: c.Key, Remove: true}
			}
			want.apply(c)
			changes = append(changes, c)
		}
		for _, body := range changeMessages(7, changes) {
			for kind, value := range attrs(&body) {
				if len(value) > 1<<16-1-attrHeader {
					t.Fatalf("an attribute of %d bytes", len(value))
				}
				if kind == wgDevicePeers {
					for _, one := range attrs(&value) {
						got.apply(decodeChange(t, one))
					}
				}
			}
		}
		if !reflect.DeepEqual(got.device(), want.device()) {
			t.Fatalf("%d changes have another effect", len(changes))
		}
	}
}

// TestWireGuardDevice: an answer in several messages is read whole, and one that is cut off is an
// error or less of it, never a crash.
func TestWireGuardDevice(t *testing.T) {
	key, at := [32]byte{1, 2, 3}, netip.MustParseAddrPort("[2001:db8::9]:51820")
	one, two := netip.MustParsePrefix("10.88.2.0/24"), netip.MustParsePrefix("fd00:88:2::/120")
	message := func(c WireGuardChange, more ...byte) []byte {
		b := appendAttr(nil, wgDevicePort, native.AppendUint16(nil, 51820))
		b = appendAttr(b, wgDevicePrivate, key[:])
		return appendAttr(b, wgDevicePeers|nested,
			appendAttr(nil, nested, append(appendChange(nil, c), more...)))
	}
	figures := appendAttr(nil, wgPeerReceived, native.AppendUint64(nil, 1000))
	figures = appendAttr(figures, wgPeerSent, native.AppendUint64(nil, 2000))
	figures = appendAttr(figures, wgPeerHandshake,
		native.AppendUint64(native.AppendUint64(nil, 1700000000), 5))
	whole := [][]byte{message(WireGuardChange{Key: key, Endpoint: at,
		AllowedIPs: []netip.Prefix{one}}, figures...),
		message(WireGuardChange{Key: key, AllowedIPs: []netip.Prefix{two}})}
	want := WireGuardDevice{Private: key, Port: 51820, Peers: []WireGuardPeer{{Key: key,
		Endpoint: at, LastHandshake: time.Unix(1700000000, 5), Received: 1000, Sent: 2000,
		AllowedIPs: []netip.Prefix{one, two}}}}
	if got, err := parseDevice(whole); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	for n := range len(whole[0]) {
		got, err := parseDevice([][]byte{whole[0][:n]})
		if err == nil && reflect.DeepEqual(got, want) {
			t.Errorf("%d of %d bytes are read as the whole", n, len(whole[0]))
		}
	}
}

// TestGenericHeader: of the header nothing is left to chance. Newer kernels refuse a request whose
// reserved bytes are not zero.
func TestGenericHeader(t *testing.T) {
	var near atomic.Pointer[uint16] // a neighbour in memory
	for i := range 1000 {
		r := genericRequest(20, 0, wgGetDevice, nil)
		for range 8 {
			n := uint16(0xffff)
			near.Store(&n)
		}
		got := r.Serialize()[16:]
		if want := []byte{wgGetDevice, 1, 0, 0}; !bytes.Equal(got, want) {
			t.Fatalf("request %d: %x, not %x", i, got, want)
		}
	}
}
