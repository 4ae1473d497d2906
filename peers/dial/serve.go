package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

// The ports of the server process. They are free in a new namespace.
const (
	portEcho   = 7001 // on 127.0.0.1 and ::1
	portOnly4  = 7002 // echo on 127.0.0.1 only
	portSource = 7003 // sends endlessly
	portProxy  = 7004
	portPaced  = 7005 // sends endlessly, 10 Gbit/s
	portPlain  = 7006 // a relay to portSource
	portIdle   = 7010 // and the next one: the proxies of idle
)

// child runs this program in another role and waits until it is ready.
func child(what string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"="+what)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ready := make([]byte, 6)
	if _, err := io.ReadFull(out, ready); err != nil || string(ready) != "ready\n" {
		cmd.Process.Kill()
		return nil, fmt.Errorf("the %s process: %q %v", what, ready, err)
	}
	return cmd, nil
}

// serve is the server of the good path. It has its own process, so that only the allocations of the
// client are counted.
func serve() error {
	d, err := eyeballstest.NewDNS("127.0.0.1:53")
	if err != nil {
		return err
	}
	for name, ttl := range map[string]uint32{"uncached.test": 0, "cached.test": 3600} {
		d.Set(name, dnsmessage.TypeA,
			eyeballstest.Record{TTL: ttl, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
		d.Set(name, dnsmessage.TypeAAAA,
			eyeballstest.Record{TTL: ttl, Addrs: []netip.Addr{netip.MustParseAddr("::1")}})
	}
	echo := func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			c.Write(b[:n])
		}
	}
	source := func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 256<<10)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
	paced := func(c net.Conn) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			c.Close()
			return
		}
		raw.Control(func(fd uintptr) {
			err = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 10e9/8)
		})
		if err != nil {
			c.Close()
			return
		}
		source(c)
	}
	for _, l := range []struct {
		addr  string
		serve func(net.Conn)
	}{
		{fmt.Sprintf("127.0.0.1:%d", portEcho), echo}, {fmt.Sprintf("[::1]:%d", portEcho), echo},
		{fmt.Sprintf("127.0.0.1:%d", portOnly4), echo},
		{fmt.Sprintf("127.0.0.1:%d", portSource), source},
		{fmt.Sprintf("127.0.0.1:%d", portPaced), paced},
	} {
		listener, err := net.Listen("tcp", l.addr)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				go l.serve(c)
			}
		}()
	}
	fmt.Println("ready")
	select {}
}

// loopbackUp brings up the loopback interface of a new namespace.
func loopbackUp() error {
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)
