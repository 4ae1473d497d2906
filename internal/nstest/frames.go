package nstest

import (
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Frames sends frames out of an interface of a node, as fast as it can, until Stop.
type Frames struct {
	MAC  net.HardwareAddr // of the interface
	fd   int
	sent atomic.Int64
	stop chan struct{}
	done sync.WaitGroup
	err  error // set before done
}

// OpenFrames prepares to send out of an interface.
func OpenFrames(n *Node, iface string) (*Frames, error) {
	f := &Frames{stop: make(chan struct{})}
	return f, n.Do(func() error {
		i, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		f.MAC = i.HardwareAddr
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return err
		}
		return unix.Bind(f.fd, &unix.SockaddrLinklayer{Ifindex: i.Index})
	})
}

// Send sends one frame.
func (f *Frames) Send(frame []byte) error {
	_, err := unix.Write(f.fd, frame)
	return err
}

// Flood begins to send what next returns for 0, 1, 2 ...
func (f *Frames) Flood(next func(n int) []byte) {
	f.done.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-f.stop:
				return
			default:
			}
			if _, err := unix.Write(f.fd, next(n)); err != nil && err != unix.ENOBUFS {
				f.err = err
				return
			}
			f.sent.Add(1)
		}
	})
}

// Stop ends the flood and returns how many frames were sent.
func (f *Frames) Stop() (int, error) {
	close(f.stop)
	f.done.Wait()
	if err := unix.Close(f.fd); f.err == nil {
		f.err = err
	}
	return int(f.sent.Load()), f.err
}
