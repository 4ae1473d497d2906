package kernel

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// upperRules let the host send by the upper device alone: what is evaluated at the NIC, too, is
// refused there.
const upperRules = `add 10 check-state
add 20 allow ip from 10.88.0.0/24,fd00:88::/64 to any in recv pod:* keep-state
add 30 allow ip from any to 10.88.0.0/24,fd00:88::/64 80 in keep-state
add 40 allow ip from any to me 81 in keep-state
add 50 allow ip from me to any out xmit up0 keep-state
add 60 deny ip from any to any
`

// onUpper is a cluster whose host has its addresses on an upper device above the NIC, up0.
type onUpper struct {
	*cluster
	nic, upper uint32
}

const hostAddrs = "192.0.2.1/24 2001:db8::1/64"

// newOnUpper makes one. `make` has the commands of ip that make up0 of eth0 at the host.
func newOnUpper(t *testing.T, make ...string) *onUpper {
	u := &onUpper{cluster: newCluster(t, upperRules)}
	u.nic = u.ifs[1].Index
	// without a link-local address the host asks for no neighbour
	for _, name := range []string{"default", "eth0"} {
		u.must(u.host.SetSysctl("net.ipv6.conf."+name+".dad_transmits", "0"))
	}
	u.ip("addr flush dev eth0")
	u.ip(make...)
	u.ip("link set eth0 up", "link set up0 up", "addr add 192.0.2.1/24 dev up0",
		"addr add 2001:db8::1/64 dev up0 nodad")
	u.ifs[1].Addrs = nil
	u.upper = u.addInterface("up0", hostAddrs)
	u.must(u.host.Do(func() error { _, err := u.engine.Attach(u.upper); return err }))
	u.awaitCarrier(u.host.Netlink(), "up0")
	// By default an address that does not answer within three seconds is unreachable.
	for _, family := range []string{"ipv4", "ipv6"} {
		u.host.Sysctl("net."+family+".neigh.up0.mcast_solicit", "300")
		u.outside.Sysctl("net."+family+".neigh.eth0.mcast_solicit", "300")
	}
	u.publish(8080, 80)
	u.masquerade(40000, 41000)
	u.serve(u.a.Node, 80)
	u.serve(u.outside, 80)
	u.serve(u.host, 81)
	return u
}

// ip runs commands of ip at the host, run at any node.
func (u *onUpper) ip(commands ...string) {
	u.t.Helper()
	u.run(u.host, commands...)
}

func (u *onUpper) run(n *nstest.Node, commands ...string) {
	u.t.Helper()
	for _, c := range commands {
		n.IP(c)
	}
}

// check wants everything that the rules allow to pass, once.
func (u *onUpper) check() {
	u.t.Helper()
	u.succeed("beside the rules", map[string]error{
		"pod to outside":          reach(u.a.Node, "192.0.2.2:80"),
		"pod to outside, 6":       reach(u.a.Node, "[2001:db8::2]:80"),
		"outside to a port":       reach(u.outside, "192.0.2.1:8080"),
		"outside to a port, 6":    reach(u.outside, "[2001:db8::1]:8080"),
		"outside to the host":     reach(u.outside, "192.0.2.1:81"),
		"outside to the host, 6":  reach(u.outside, "[2001:db8::1]:81"),
		"host to outside":         reach(u.host, "192.0.2.2:80"),
		"host to outside, 6":      reach(u.host, "[2001:db8::2]:80"),
		"fragments of a pod":      ping(u.a.Node, "-s", "4000", "192.0.2.2"),
		"fragments of a pod, 6":   ping(u.a.Node, "-s", "4000", "2001:db8::2"),
		"fragments of the host":   ping(u.host, "-s", "4000", "192.0.2.2"),
		"what begins at a pod, 6": ping(u.a.Node, "2001:db8::2"),
	})
	long := strings.Repeat("segments ", 50000)
	for _, from := range []*nstest.Node{u.a.Node, u.host} {
		c, err := dialFrom(from, "192.0.2.2:80", testTimeout)
		if err == nil {
			err = errors.Join(echoText(c, long), c.Close())
		}
		if err != nil {
			u.t.Errorf("a long text of %s: %v", from, err)
		}
	}
	for _, s := range u.states() {
		if s.Proto == 17 && s.To.Port() == 81 && s.Packets[1] != 1 {
			u.t.Errorf("an answer was counted %d times: %+v", s.Packets[1], s)
		}
	}
}

// refused wants no connection of the host to the outside.
func (u *onUpper) refused(when string) {
	u.t.Helper()
	for _, to := range []string{"192.0.2.2:80", "[2001:db8::2]:80"} {
		if tryExchange(u.host, to) == nil {
			u.t.Errorf("%s: the host reaches %s although no rule allows it", when, to)
		}
	}
}

func TestUpperBridge(t *testing.T) {
	t.Parallel()
	u := newOnUpper(t, "link add up0 type bridge", "link set eth0 master up0")
	vm := u.lab.Node("vm")
	u.lab.Join(u.host, "vnet0", "", vm, "eth0", "192.0.2.9/24 2001:db8::9/64")
	// with another address than its port's: frames for the bridge are for another host there
	u.ip("link set up0 address 02:00:00:00:00:05", "link set vnet0 master up0")
	port := u.host.Link("vnet0")
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic},
		{Index: u.upper, Lower: uint32(port.Index)}}))
	u.check()
	// What the bridge forwards is evaluated at the NIC, in both directions.
	u.serve(vm, 80)
	for _, to := range []string{"192.0.2.9:80", "[2001:db8::9]:80"} {
		if tryExchange(u.outside, to) == nil {
			t.Errorf("the outside reaches %s behind the bridge", to)
		}
	}
	for _, to := range []string{"192.0.2.2:80", "[2001:db8::2]:80"} {
		if tryExchange(vm, to) == nil {
			t.Errorf("a host behind the bridge reaches %s", to)
		}
	}
	u.must(u.engine.Load(compile(t, upperRules+
		"add 55 allow ip from any to 192.0.2.9,2001:db8::9 80 in recv eth0 keep-state\n")))
	for _, to := range []string{"192.0.2.9:80", "[2001:db8::9]:80"} {
		if err := reach(u.outside, to); err != nil {
			t.Errorf("the outside does not reach %s behind the bridge: %v", to, err)
		}
	}
	u.check()
}

// TestUpperSegments: the kernel makes segments between the hooks where the NIC cannot.
func TestUpperSegments(t *testing.T) {
	t.Parallel()
	u := newOnUpper(t, "link add up0 type bridge", "link set eth0 master up0")
	for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SSG,
		unix.ETHTOOL_STXCSUM} {
		u.must(u.host.Do(func() error { return switchOff("eth0", command) }))
	}
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic}}))
	u.check()
}

// switchOff switches an offload of an interface off, as ethtool -K does.
func switchOff(name string, command uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command} // struct ethtool_value
	request := struct {                                       // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		pad  [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	if e != 0 {
		return e
	}
	return nil
}

// TestUpperWithoutHooks: the lower device evaluates what was not evaluated above it.
func TestUpperWithoutHooks(t *testing.T) {
	t.Parallel()
	u := newOnUpper(t, "link add up0 type bridge", "link set eth0 master up0")
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic}}))
	u.must(exchange(u.host, "192.0.2.2:80"))
	u.must(u.host.Do(func() error { return u.engine.Detach(u.upper) }))
	u.refused("without hooks above")
	u.must(u.host.Do(func() error { _, err := u.engine.Attach(u.upper); return err }))
	u.must(exchange(u.host, "192.0.2.2:80"))
	// While no agent runs the upper device goes, and the NIC gets its addresses.
	u.ip("link del up0", "link set eth0 down", "link set eth0 up", "addr add 192.0.2.1/24 dev eth0",
		"addr add 2001:db8::1/64 dev eth0 nodad")
	u.refused("without the upper device")
}

// TestUpperPassesNothingElse: what a process sends by the port itself, and what a guest of the
// bridge sends, is evaluated at the port, whatever has left before.
func TestUpperPassesNothingElse(t *testing.T) {
	t.Parallel()
	u := newOnUpper(t, "link add up0 type bridge", "link set eth0 master up0")
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic}}))
	guest := u.lab.Node("guest")
	u.lab.Join(u.host, "vnet0", "", guest, "eth0", "192.0.2.9/24")
	u.ip("link set vnet0 master up0")
	u.must(exchange(u.host, "192.0.2.2:80"))
	before := u.drops(firewall.ReasonRule)
	u.must(u.host.Do(func() error {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "eth0")
			}), err)
		}}
		c, err := d.Dial("udp4", "239.1.2.3:9")
		if err == nil {
			_, err = c.Write([]byte("by the port itself"))
			err = errors.Join(err, c.Close())
		}
		return err
	}))
	nstest.Eventually(t, "what is sent by the port is refused", func() bool {
		return u.drops(firewall.ReasonRule) > before
	})
	if tryExchange(guest, "192.0.2.2:80") == nil {
		t.Error("a guest of the bridge reaches the outside although no rule allows it")
	}
}

// TestUpperRecognises: a lower device lets pass the frame that was let pass above it, with the same
// origin, and no more segments than the kernel makes of it.
func TestUpperRecognises(t *testing.T) {
	u := newOnUpper(t, "link add up0 type bridge", "link set eth0 master up0")
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic}}))
	u.must(u.engine.Load(compile(t, "add allow ip from me to any out xmit up0\n"+
		"add deny ip from any to any\n")))
	segment := func(port uint16, seq uint32, n int) []byte {
		b := enginetest.Packet(t, build.IPv4{Src: hostAddr, Dst: outsideAddr},
			build.TCP{SrcPort: port, DstPort: 80, Seq: seq, Flags: packet.FlagACK},
			build.Data(make([]byte, n)))
		return append(append(make([]byte, 12), 8, 0), b...)
	}
	leaves := func(at, from uint32, gso int, frame []byte) bool {
		t.Helper()
		context := make([]byte, 192) // struct __sk_buff
		binary.NativeEndian.PutUint32(context[36:], from)
		binary.NativeEndian.PutUint32(context[40:], at)
		binary.NativeEndian.PutUint32(context[176:], uint32(gso))
		var code uint32
		run := func() (err error) {
			code, err = u.engine.objects.WeirOut.Run(&ebpf.RunOptions{Data: frame, Context: context,
				DataOut: make([]byte, len(frame)+64)})
			return err
		}
		u.must(u.host.Do(func() error { return onFirstCPU(run) }))
		return int32(code) == wentUp
	}
	for _, step := range []struct {
		what     string
		at, from uint32
		gso      int
		frame    []byte
		want     bool
	}{
		{"a frame below, before any", u.nic, 0, 0, segment(1000, 1, 10), false},
		{"a frame above", u.upper, 0, 0, segment(1000, 1, 10), true},
		{"the same below", u.nic, 0, 0, segment(1000, 1, 10), true},
		{"a longer one", u.nic, 0, 0, segment(1000, 1, 11), false},
		{"another sequence number", u.nic, 0, 0, segment(1000, 2, 10), false},
		{"another origin", u.nic, u.upper + 1, 0, segment(1000, 1, 10), false},
		{"three segments in one", u.upper, 0, 1000, segment(1000, 1, 2500), true},
		{"of another connection", u.nic, 0, 0, segment(1001, 1, 1000), false},
		{"of another origin", u.nic, u.upper + 1, 0, segment(1000, 1, 1000), false},
		{"the first", u.nic, 0, 0, segment(1000, 1, 1000), true},
		{"the second", u.nic, 0, 0, segment(1000, 1001, 1000), true},
		{"the third", u.nic, 0, 0, segment(1000, 2001, 500), true},
		{"a fourth", u.nic, 0, 0, segment(1000, 2501, 500), false},
	} {
		if got := leaves(step.at, step.from, step.gso, step.frame); got != step.want {
			t.Errorf("%s: it leaves: %v", step.what, got)
		}
	}
}

// TestUppersKept: the next engine keeps the upper devices until it gets others.
func TestUppersKept(t *testing.T) {
	t.Parallel()
	u := newOnUpper(t, "link add up0 type bridge", "link set eth0 master up0")
	at := []Upper{{Index: u.upper, Lower: u.nic}}
	u.must(u.engine.SetUppers(at))
	u.must(u.engine.Close())
	u.open()
	u.must(u.engine.SetInterfaces(u.ifs))
	u.must(u.engine.SetUppers(at))
	u.must(u.engine.Load(compile(t, upperRules)))
	u.check()
	held, err := readAll[weirUpperKey, uint32](u.engine.objects.Uppers)
	if err != nil || len(held) != 1 {
		t.Errorf("the map holds %v, %v", held, err)
	}
	u.must(u.engine.SetUppers(nil))
	held, err = readAll[weirUpperKey, uint32](u.engine.objects.Uppers)
	if err != nil || len(held) != 0 || u.engine.config.Uppers != 0 {
		t.Errorf("without upper devices the map holds %v, %v", held, err)
	}
}
