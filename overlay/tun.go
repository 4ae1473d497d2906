package overlay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/poller"
)

// tunDevice is the network interface, as a tun.Device.
type tunDevice struct {
	name    string
	index   uint32
	mtu     atomic.Int32
	pathMTU atomic.Pointer[[]rangeMTU] // nil for none
	filter  Filter
	onLost  func(packet []byte) // Config.NoPeer
	file    *os.File            // not watched by the runtime's poller
	raw     syscall.RawConn
	ready   poller.Poller // for packets of the kernel
	events  *tunEvents
	once    sync.Once

	in           tunReader
	writers      pool[tunWriter]
	noTCP, noUDP atomic.Bool

	dropped [2]atomic.Uint64 // packets that the filter refused, by firewall.Direction
	broken  atomic.Uint64    // packets from the kernel that could not be segmented
	noPeer  atomic.Uint64    // packets from the kernel to an address that no peer has
	// packets from the kernel whose pending checksum is not where it belongs
	misplaced atomic.Uint64
	loop      loopGuard
}

// openTUN makes the interface, down and without addresses.
func openTUN(name string, mtu int, offload bool, filter Filter) (*tunDevice, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("overlay: open /dev/net/tun: %w", err)
	}
	t := &tunDevice{filter: filter, events: newTunEvents()}
	if err := t.attach(fd, name, offload); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("overlay: make interface %s: %w", name, err)
	}
	// still in blocking mode, so that the runtime does not add it to its poller
	t.file = os.NewFile(uintptr(fd), "/dev/net/tun")
	if t.raw, err = t.file.SyscallConn(); err == nil {
		if err = unix.SetNonblock(fd, true); err == nil {
			err = t.ready.Open(fd, unix.EPOLLIN)
		}
	}
	if err != nil {
		t.file.Close()
		return nil, fmt.Errorf("overlay: interface %s: %w", name, err)
	}
	t.mtu.Store(int32(mtu))
	t.writers.newItem = func() *tunWriter { return newTunWriter(t) }
	t.in.init(t, fd)
	return t, nil
}

// lost counts a packet from the kernel that no peer has the address of.
func (t *tunDevice) lost(packet []byte) {
	t.noPeer.Add(1)
	if t.onLost != nil {
		t.onLost(packet)
	}
}

func (t *tunDevice) attach(fd int, name string, offload bool) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	// EINVAL: an interface that is not a TUN device
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) && isThere(name) {
		return ErrNameTaken
	}
	if err != nil {
		return os.NewSyscallError("TUNSETIFF", err)
	}
	t.name = req.Name()
	if err := t.setOffloads(fd, offload); err != nil {
		return err
	}
	link, err := net.InterfaceByName(t.name)
	if err != nil {
		return err
	}
	t.index = uint32(link.Index)
	return nil
}

// ErrNameTaken means that another program has an interface of the Device's name, which is left
// alone.
var ErrNameTaken = errors.New("another program has an interface of that name")

func isThere(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// GSO packets of the kernel, whose checksums we compute: always for TCP, from Linux 6.2 on for UDP.
const (
	offloadTCP = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	offloadUDP = unix.TUN_F_USO4 | unix.TUN_F_USO6
)

// setOffloads sets which GSO packets the kernel may send, and finds out which it accepts.
func (t *tunDevice) setOffloads(fd int, on bool) error {
	flags := 0
	if on {
		flags = offloadTCP | offloadUDP
	}
	err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags)
	noUDP := err != nil
	if noUDP {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags&offloadTCP)
	}
	if err != nil {
		return os.NewSyscallError("TUNSETOFFLOAD", err)
	}
	t.noTCP.Store(!on)
	t.noUDP.Store(!on || noUDP || losesUDP())
	return nil
}

// losesUDP reports whether the kernel loses GSO packets of UDP that come through an interface and
// hold a tunnel of its own, such as VXLAN: fixed in Linux 6.8.5 (tailscale/tailscale#11026).
func losesUDP() bool {
	var u unix.Utsname
	var a, b, c int
	if unix.Uname(&u) != nil {
		return true
	}
	// Numbers that are missing stay 0.
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d.%d", &a, &b, &c)
	return a < 6 || a == 6 && (b < 8 || b == 8 && c < 5)
}

// coalesceRefused is called when the kernel refused coalesced packets of a protocol: it has a bug
// with them (Linux 6.6.44 and stable kernels of that time, tailscale/tailscale#13041). Packets of
// the protocol are not coalesced any more.
func (t *tunDevice) coalesceRefused(protocol uint8) {
	if protocol == protocolUDP {
		t.noUDP.Store(true)
	} else {
		t.noTCP.Store(true)
	}
}

// verdicts is the memory of one call of the filter.
type verdicts struct {
	packets  [][]byte
	segments []uint16 // as in Filter
	pass     []bool
}

func (v *verdicts) decide(filter Filter, hook firewall.Hook) {
	n := len(v.packets)
	if cap(v.pass) < n {
		v.pass = make([]bool, max(n, batchSize))
	}
	v.pass = v.pass[:n]
	for i := range v.pass {
		v.pass[i] = filter == nil
	}
	if filter != nil && n > 0 {
		filter(hook, v.packets, v.segments, v.pass)
	}
}

func (v *verdicts) put(packet []byte, segment uint16) {
	v.packets, v.segments = append(v.packets, packet), append(v.segments, segment)
}

func (v *verdicts) reset() {
	clear(v.packets)
	v.packets, v.segments = v.packets[:0], v.segments[:0]
}

// File implements tun.Device.
func (t *tunDevice) File() *os.File { return t.file }

// MTU implements tun.Device.
func (t *tunDevice) MTU() (int, error) { return int(t.mtu.Load()), nil }

// Name implements tun.Device.
func (t *tunDevice) Name() (string, error) { return t.name, nil }

// Events implements tun.Device.
func (t *tunDevice) Events() <-chan tun.Event { return t.events.list }

// BatchSize implements tun.Device.
func (t *tunDevice) BatchSize() int { return batchSize }

// Close implements tun.Device: the interface is removed.
func (t *tunDevice) Close() error {
	err := os.ErrClosed
	t.once.Do(func() {
		t.ready.Close() // returns when no reader is left
		err = t.file.Close()
		t.events.close()
	})
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
