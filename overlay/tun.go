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
)

// tunDevice is the interface that packets come from and go to: a tun.Device. The library's own device writes, that is,
// joins segments to super packets; reading, judging and the life of the interface are ours.
type tunDevice struct {
	name   string
	index  uint32
	mtu    atomic.Int32
	judge  Judge
	file   *os.File
	raw    syscall.RawConn
	writer tun.Device // works on file
	events chan tun.Event
	once   sync.Once

	in     drainer
	passes sync.Pool // of *verdicts

	dropped [2]atomic.Uint64 // packets that the judge refused, by firewall.Direction
	broken  atomic.Uint64    // packets from the kernel that could not be cut
}

// openTUN makes the interface, down and without addresses.
func openTUN(name string, mtu int, offload bool, judge Judge) (*tunDevice, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("overlay: open /dev/net/tun: %w", err)
	}
	t := &tunDevice{judge: judge, events: make(chan tun.Event)}
	if err := t.attach(fd, name, offload); err != nil {
		if t.writer != nil {
			t.writer.Close()
		} else {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("overlay: make interface %s: %w", name, err)
	}
	if !offload {
		if w, ok := t.writer.(tun.GRODevice); ok {
			w.DisableTCPGRO()
			w.DisableUDPGRO()
		}
	}
	t.mtu.Store(int32(mtu))
	t.passes.New = func() any { return new(verdicts) }
	t.in.init(t)
	return t, nil
}

func (t *tunDevice) attach(fd int, name string, offload bool) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return os.NewSyscallError("TUNSETIFF", err)
	}
	t.name = req.Name()
	// Takes the descriptor, also when it fails. It asks for TSO, and for USO from Linux 6.2 on.
	if t.writer, _, err = tun.CreateUnmonitoredTUNFromFD(fd); err != nil {
		return err
	}
	if !offload {
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0); err != nil {
			return os.NewSyscallError("TUNSETOFFLOAD", err)
		}
	}
	t.file = t.writer.File()
	if t.raw, err = t.file.SyscallConn(); err != nil {
		return err
	}
	link, err := net.InterfaceByName(t.name)
	if err != nil {
		return err
	}
	t.index = uint32(link.Index)
	return nil
}

// Write implements tun.Device: packets that came from peers, authentic and from their pod ranges, go to the kernel.
func (t *tunDevice) Write(bufs [][]byte, offset int) (int, error) {
	mtu := int(t.mtu.Load())
	for _, b := range bufs {
		clampMSS(b[offset:], mtu, false)
	}
	if t.judge == nil {
		return t.writer.Write(bufs, offset)
	}
	v := t.passes.Get().(*verdicts)
	defer t.passes.Put(v)
	defer v.reset()
	for _, b := range bufs {
		v.add(b[offset:])
	}
	v.decide(t.judge, firewall.Hook{Dir: firewall.In, Recv: t.index})
	for i, b := range bufs {
		if v.pass[v.of[i]] {
			v.kept = append(v.kept, b)
		}
	}
	t.dropped[firewall.In].Add(uint64(len(bufs) - len(v.kept)))
	if len(v.kept) == 0 {
		return 0, nil
	}
	return t.writer.Write(v.kept, offset)
}

// verdicts is the memory of one judgement.
type verdicts struct {
	runs
	pass []bool
	kept [][]byte
}

func (v *verdicts) decide(judge Judge, hook firewall.Hook) {
	n := len(v.packets)
	if cap(v.pass) < n {
		v.pass = make([]bool, max(n, batchSize))
	}
	v.pass = v.pass[:n]
	clear(v.pass)
	judge(hook, v.packets, v.pass)
}

func (v *verdicts) reset() {
	clear(v.kept)
	v.kept = v.kept[:0]
	v.runs.reset()
}

// File implements tun.Device.
func (t *tunDevice) File() *os.File { return t.file }

// MTU implements tun.Device.
func (t *tunDevice) MTU() (int, error) { return int(t.mtu.Load()), nil }

// Name implements tun.Device.
func (t *tunDevice) Name() (string, error) { return t.name, nil }

// Events implements tun.Device.
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

// BatchSize implements tun.Device.
func (t *tunDevice) BatchSize() int { return batchSize }

// Close implements tun.Device: the interface goes away.
func (t *tunDevice) Close() error {
	err := os.ErrClosed
	t.once.Do(func() {
		err = t.writer.Close() // and its own event channel, which nobody reads
		close(t.events)
	})
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
