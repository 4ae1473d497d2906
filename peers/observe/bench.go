package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// bench is a client and a server with a node.
type bench struct {
	lab            *nstest.Lab
	server, client *nstest.Node
	weir, root     string
	bpffs          string
	unmount        func() error
	agent          *nstest.Cmd
	from, to       net.HardwareAddr
}

const rules = `add 1 check-state
add 9 allow udp from any to me 9 keep-state
add 10 deny udp from any to me 10
`

const settings = `[observe]
history = "0s"
[states]
max = 1100000
half_open = 1100000
[timeouts]
udp = "20m"
`

func newBench(weir string) (*bench, error) {
	weir, err := filepath.Abs(weir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(weir); err != nil {
		return nil, fmt.Errorf("%w (run: make build)", err)
	}
	lab, err := nstest.Open()
	if err != nil {
		return nil, err
	}
	b := &bench{lab: lab, weir: weir}
	if err := b.setUp(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) setUp() (err error) {
	if b.root, err = os.MkdirTemp("", "weir-observe-"); err != nil {
		return err
	}
	if b.server, err = b.lab.AddNode("server"); err != nil {
		return err
	}
	if b.client, err = b.lab.AddNode("client"); err != nil {
		return err
	}
	there, _ := nstest.Prefixes("10.99.255.1/16")
	here, _ := nstest.Prefixes("10.99.0.1/16")
	if err := b.lab.AddLink(nstest.End{Node: b.server, Iface: "eth0", Addrs: there},
		nstest.End{Node: b.client, Iface: "eth0", Addrs: here}); err != nil {
		return err
	}
	for node, mac := range map[*nstest.Node]*net.HardwareAddr{b.server: &b.to, b.client: &b.from} {
		if err := node.Do(func() error {
			i, err := net.InterfaceByName("eth0")
			if err == nil {
				*mac = i.HardwareAddr
			}
			return err
		}); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"rules": rules, "weir.toml": settings} {
		if err := os.WriteFile(filepath.Join(b.root, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if b.bpffs, b.unmount, err = nstest.MountBpffs(); err != nil {
		return err
	}
	b.agent = b.server.Command(b.weir, "--root", b.root, "--bpffs", filepath.Join(b.bpffs, "weir"),
		"up", "--iface", "eth0",
		"--rules", filepath.Join(b.root, "rules"), "--config", filepath.Join(b.root, "weir.toml"))
	b.agent.Stderr = os.Stderr
	if err := b.agent.Start(); err != nil {
		b.agent = nil
		return err
	}
	return b.weirDo("status", "--wait", "20s")
}

func (b *bench) close() error {
	if b.agent != nil {
		b.agent.Process.Signal(syscall.SIGTERM)
		b.agent.Wait()
	}
	var unmounted error
	if b.unmount != nil {
		unmounted = b.unmount()
	}
	return errors.Join(b.lab.Close(), unmounted, os.RemoveAll(b.root))
}

// weirOut runs a command against the node.
func (b *bench) weirOut(args ...string) ([]byte, error) {
	cmd := b.server.Command(b.weir, append([]string{"--root", b.root}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("weir %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

func (b *bench) weirDo(args ...string) error {
	_, err := b.weirOut(args...)
	return err
}

// counter returns the packets of a rule.
func (b *bench) counter(number int) (uint64, error) {
	out, err := b.weirOut("fw", "show", "-j", strconv.Itoa(number))
	var a struct{ Rules []struct{ Packets uint64 } }
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil || len(a.Rules) != 1 {
		return 0, fmt.Errorf("counter of rule %d: %w", number, err)
	}
	return a.Rules[0].Packets, nil
}

func (b *bench) states() (int, error) {
	out, err := b.weirOut("status", "-j")
	var a struct{ States int }
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	return a.States, err
}

// watcher is a running `weir flow watch -j` and the counts of its lines.
type watcher struct {
	cmd          *nstest.Cmd
	events, lost uint64
	done         chan error
}

func (b *bench) watch(filter ...string) (*watcher, error) {
	w := &watcher{cmd: b.server.Command(b.weir,
		append([]string{"--root", b.root, "flow", "watch", "-j"}, filter...)...),
		done: make(chan error, 1)}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			line := s.Text()
			if _, rest, ok := strings.Cut(line, `,"lost":`); ok {
				n, _ := strconv.ParseUint(rest[:strings.IndexAny(rest, ",}")], 10, 64)
				w.lost += n
			}
			if !strings.Contains(line, `"kind":"lost"`) {
				w.events++
			}
		}
		w.done <- s.Err()
	}()
	time.Sleep(100 * time.Millisecond)
	return w, nil
}

func (w *watcher) stop() (events, lost uint64, err error) {
	w.cmd.Process.Signal(syscall.SIGINT)
	err = <-w.done
	return w.events, w.lost, errors.Join(err, w.cmd.Wait())
}

// sender sends UDP frames without a queueing discipline: the kernel does the receiver's work in the
// same system call.
type sender struct {
	fd    int
	frame []byte
	to    unix.SockaddrLinklayer
}

// sender must be called on a thread in the client's namespace.
func (b *bench) sender() (*sender, error) {
	i, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		unix.Close(fd)
		return nil, err
	}
	ip, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.99.0.1"),
		Dst: netip.MustParseAddr("10.99.255.1")},
		build.UDP{SrcPort: 1, DstPort: 1, NoChecksum: true}, build.Data(make([]byte, 18)))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s := &sender{fd: fd, to: unix.SockaddrLinklayer{Ifindex: i.Index, Halen: 6}}
	s.frame = append(append(append(append(s.frame, b.to...), b.from...), 8, 0), ip...)
	copy(s.to.Addr[:], b.to)
	return s, nil
}

func (s *sender) close() { unix.Close(s.fd) }

// source changes the last byte of the source address, and the header's checksum with it (RFC 1624).
func (s *sender) source(last byte) {
	ip := s.frame[14:]
	sum := uint32(^(uint16(ip[10])<<8 | uint16(ip[11]))) +
		uint32(^(uint16(ip[14])<<8 | uint16(ip[15]))) + uint32(uint16(ip[14])<<8|uint16(last))
	ip[15] = last
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	ip[10], ip[11] = byte(^sum>>8), byte(^sum)
}

func (s *sender) send(from, to uint16) error {
	udp := s.frame[34:]
	udp[0], udp[1], udp[2], udp[3] = byte(from>>8), byte(from), byte(to>>8), byte(to)
	return unix.Sendto(s.fd, s.frame, 0, &s.to)
}
