package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule/netfilter"
)

// device is an interface of the host whose rules are compared.
type device struct {
	name     string
	networks []netip.Prefix
	fd       int
}

// topology is the same for every rule set: the rules name these interfaces.
var topology = []device{
	{name: "eth0", networks: prefixes("192.0.2.1/24 2001:db8::1/64")},
	{name: "eth1", networks: prefixes("10.0.0.1/24 2001:db8:1::1/64")},
	{name: "docker0", networks: prefixes("172.17.0.1/16 fd00:17::1/64")},
}

// localRoutes lead to the host, which does not have these addresses.
var localRoutes = prefixes("203.0.113.64/28 2001:db8:f:1::/64")

// ofHost is what the import knows of the host.
func ofHost() netfilter.Options {
	o := netfilter.Options{Local: localRoutes}
	for _, d := range topology {
		o.Networks = append(o.Networks, d.networks...)
	}
	return o
}

func prefixes(list string) (all []netip.Prefix) {
	for s := range strings.FieldsSeq(list) {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// mark is what the packets that the test sends from the host carry. What the kernel answers has
// none, and is dropped.
const mark = 0x77

// capture reports what has passed all other chains, and markers as soon as they come in.
const capture = `table inet capture {
	chain markers {
		type filter hook prerouting priority -2000
		ip protocol 254 log group 7 snaplen 96 drop
	}
	chain in {
		type filter hook input priority 2000
		log group 7 snaplen 96
	}
	chain out {
		type filter hook postrouting priority 2000
		log group 7 snaplen 96
	}
	chain answers {
		type filter hook output priority -500
		meta mark != 0x77 drop
	}
}
`

// host is a namespace with netfilter's rules.
type host struct {
	node    *nstest.Node
	devices []device
	raw     [2]int // sockets that send IPv4 and IPv6 packets
	log     int    // socket of NFLOG
	hook    byte   // at which the last packet was reported
	markers uint16 // that were sent
	buf     []byte
}

func newHost(t *testing.T) *host {
	t.Helper()
	onOneCPU(t)
	h := &host{node: nstest.New(t).Node("netfilter"), devices: append([]device{}, topology...),
		buf: make([]byte, 1<<16)}
	for key, value := range map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0",
		"net.ipv4.conf.all.send_redirects": "0", "net.ipv4.conf.default.send_redirects": "0",
	} {
		h.node.Sysctl(key, value)
	}
	err := h.node.Do(func() (err error) {
		for i := range h.devices {
			if h.devices[i].fd, err = openTUN(h.devices[i].name); err != nil {
				return err
			}
		}
		return h.sockets()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	// An address that comes before its link would have its routes when the kernel notices the link.
	for _, d := range h.devices {
		h.run(t, "ip", "link", "set", d.name, "up")
	}
	for _, d := range h.devices {
		for _, n := range d.networks {
			args := []string{"ip", "addr", "add", n.String(), "dev", d.name}
			if n.Addr().Is6() {
				args = append(args, "nodad")
			}
			h.run(t, args...)
		}
	}
	for _, p := range localRoutes {
		h.run(t, "ip", "route", "add", "local", p.String(), "dev", "lo")
	}
	h.run(t, "ip", "route", "add", "default", "dev", "eth0")
	h.run(t, "ip", "-6", "route", "add", "default", "dev", "eth0")
	h.input(t, capture, "nft", "-f", "-")
	// the trackers' own settings appear with them
	h.node.Sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")
	h.await(t)
	return h
}

// await sends packets to all addresses of the host and out of all devices until they pass. The
// kernel notices in its own time that a device is up, and has the routes of IPv6 from then on.
func (h *host) await(t *testing.T) {
	t.Helper()
	for i := range h.devices {
		for _, n := range h.devices[i].networks {
			h.awaitProbe(t, &h.devices[0], remoteOf[n.Addr().Is6()], n.Addr())
			h.awaitProbe(t, nil, n.Addr(), n.Addr().Next())
		}
	}
}

// remoteOf are addresses of other hosts, by whether they are of IPv6.
var remoteOf = map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.254"),
	true: netip.MustParseAddr("2001:db8:f::fffe")}

func (h *host) awaitProbe(t *testing.T, from *device, src, dst netip.Addr) {
	t.Helper()
	var head build.Layer = build.IPv6{Src: src, Dst: dst}
	if src.Is4() {
		head = build.IPv4{Src: src, Dst: dst, ID: 1}
	}
	probe, err := build.Packet(head, build.Upper(253), build.Data(make([]byte, 24)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		passed, err := h.meets(from, probe)
		if passed && (from == nil || h.hook == hookInput) { // not passed on
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("packets from %v to %v do not pass a host without rules: %v", src, dst, err)
		}
	}
}

// openTUN makes a TUN device in the namespace of the thread.
func openTUN(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return fd, unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
}

// sockets opens the raw sockets and that of NFLOG.
func (h *host) sockets() (err error) {
	for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if h.raw[i], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.IPPROTO_RAW); err != nil {
			return err
		}
		if err = unix.SetsockoptInt(h.raw[i], unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
			return err
		}
	}
	h.log, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	if err := unix.Bind(h.log, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	bind := attribute(1, []byte{1})                 // NFULA_CFG_CMD: NFULNL_CFG_CMD_BIND
	mode := attribute(2, []byte{0, 0, 0, 96, 2, 0}) // NFULA_CFG_MODE: 96 bytes of the packet
	each := attribute(5, []byte{0, 0, 0, 1})        // NFULA_CFG_QTHRESH: one at a time
	small := attribute(3, []byte{0, 0, 4, 0})       // NFULA_CFG_NLBUFSIZ
	for _, attr := range [][]byte{bind, mode, each, small} {
		if err := h.configure(attr); err != nil {
			return fmt.Errorf("NFLOG: %w", err)
		}
	}
	return nil
}

// native is the byte order of netlink's headers.
var native = binary.NativeEndian

// attribute returns an attribute of netlink.
func attribute(kind uint16, value []byte) []byte {
	b := native.AppendUint16(nil, uint16(4+len(value)))
	b = append(native.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// group is the NFLOG group.
const group = 7

// configure sends an NFULNL_MSG_CONFIG and waits for its acknowledgement.
func (h *host) configure(attr []byte) error {
	b := make([]byte, 20, 20+len(attr))
	native.PutUint32(b, uint32(20+len(attr)))
	native.PutUint16(b[4:], 4<<8|1) // NFNL_SUBSYS_ULOG, NFULNL_MSG_CONFIG
	native.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b[19] = group
	if err := unix.Sendto(h.log, append(b, attr...), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	n, _, err := unix.Recvfrom(h.log, h.buf, 0)
	if err != nil {
		return err
	}
	if n < 20 || native.Uint16(h.buf[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("%d bytes that do not acknowledge", n)
	}
	if code := int32(native.Uint32(h.buf[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

func (h *host) close() {
	for _, d := range h.devices {
		unix.Close(d.fd)
	}
	unix.Close(h.raw[0])
	unix.Close(h.raw[1])
	unix.Close(h.log)
}

func (h *host) run(t *testing.T, args ...string) { h.input(t, "", args...) }

// input runs a program in the namespace.
func (h *host) input(t *testing.T, text string, args ...string) {
	t.Helper()
	cmd := h.node.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", args, err, out, text)
	}
}

// importNft imports what nft lists of table inet filter.
func (h *host) importNft(t *testing.T) *netfilter.Result {
	t.Helper()
	text, err := h.node.Command("nft", "-j", "list", "table", "inet", "filter").Output()
	if err != nil {
		t.Fatal(err)
	}
	return imported(t, string(text), ofHost())
}

// imported imports a rule set of which nothing may be left out.
func imported(t *testing.T, text string, o netfilter.Options) *netfilter.Result {
	t.Helper()
	result, err := netfilter.Import([]netfilter.Source{{Name: "rules", Text: text}}, o)
	if err != nil || !result.Complete() {
		t.Fatalf("%v, %+v", err, result)
	}
	return result
}

// onOneCPU keeps the test on a thread of its own and on one processor: what comes in there the
// kernel takes in order.
func onOneCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// marker makes a packet that is reported behind all that came in before it.
func (h *host) marker() ([]byte, error) {
	h.markers++
	return build.Packet(build.IPv4{Src: remoteOf[false], Dst: topology[0].networks[0].Addr(),
		ID: h.markers}, build.Upper(254), build.Data(binary.BigEndian.AppendUint16(nil, h.markers)))
}

// meets sends a packet in over a device, or out of the host for a nil device, and reports whether
// it passed. The kernel may take what comes in later than it is sent: a marker shows when it has.
func (h *host) meets(from *device, pkt []byte) (bool, error) {
	var err error
	var marker []byte
	switch {
	case from != nil:
		if _, err = unix.Write(from.fd, pkt); err == nil {
			if marker, err = h.marker(); err == nil {
				_, err = unix.Write(from.fd, marker)
			}
		}
	case pkt[0]>>4 == 4:
		err = unix.Sendto(h.raw[0], pkt, 0, &unix.SockaddrInet4{Addr: [4]byte(pkt[16:20])})
	default:
		err = unix.Sendto(h.raw[1], pkt, 0, &unix.SockaddrInet6{Addr: [16]byte(pkt[24:40])})
	}
	if err != nil && err != unix.EPERM {
		return false, fmt.Errorf("send: %w", err)
	}
	passed := false
	for {
		n, _, err := unix.Recvfrom(h.log, h.buf, 0)
		if err == unix.EAGAIN && marker == nil {
			return passed, nil
		}
		if err == unix.EAGAIN {
			wait := []unix.PollFd{{Fd: int32(h.log), Events: unix.POLLIN}}
			minutes := int(5 * time.Minute / time.Millisecond)
			if n, err := unix.Poll(wait, minutes); n == 0 || err != nil && err != unix.EINTR {
				return false, fmt.Errorf("NFLOG reports no marker: %w", err)
			}
			continue
		}
		if err != nil {
			return false, fmt.Errorf("NFLOG: %w", err)
		}
		switch report := readReport(h.buf[:n]); {
		case marker != nil && bytes.Equal(report.packet, marker):
			return passed, nil
		case sameEnds(report.packet, pkt):
			passed, h.hook = true, report.hook
		}
	}
}

// report is a message of NFLOG.
type report struct {
	packet []byte
	hook   byte
}

// hookInput is the hook of packets for the host itself (NF_INET_LOCAL_IN).
const hookInput = 1

func readReport(b []byte) (r report) {
	for b = b[min(20, len(b)):]; len(b) >= 4; {
		size := int(native.Uint16(b))
		if size < 4 || size > len(b) {
			return r
		}
		switch kind := native.Uint16(b[2:]); {
		case kind == 1 && size >= 7: // NFULA_PACKET_HDR
			r.hook = b[6]
		case kind == 9: // NFULA_PAYLOAD
			r.packet = b[4:size]
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return r
}

// sameEnds reports whether two packets have the same addresses and what follows them.
func sameEnds(a, b []byte) bool {
	from := 12
	if b[0]>>4 == 6 {
		from = 8
	}
	n := min(len(a), len(b), 60)
	return n > from && bytes.Equal(a[from:n], b[from:n])
}
