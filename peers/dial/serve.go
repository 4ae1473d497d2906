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

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/proxy"
)

// The ports of the server process, free in a fresh namespace.
const (
	portEcho   = 7001 // on 127.0.0.1 and ::1
	portOnly4  = 7002 // echo on 127.0.0.1 alone
	portSource = 7003 // sends for ever
	portProxy  = 7004
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

// serve is the far side of the good path, in a process of its own so that only
// the near side's allocations are counted.
func serve() error {
	d, err := eyeballstest.NewDNS("127.0.0.1:53")
	if err != nil {
		return err
	}
	for name, ttl := range map[string]uint32{"fresh.test": 0, "cached.test": 3600} {
		d.Set(name, dnsmessage.TypeA, eyeballstest.Record{TTL: ttl, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
		d.Set(name, dnsmessage.TypeAAAA, eyeballstest.Record{TTL: ttl, Addrs: []netip.Addr{netip.MustParseAddr("::1")}})
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
	for _, l := range []struct {
		addr  string
		serve func(net.Conn)
	}{
		{fmt.Sprintf("127.0.0.1:%d", portEcho), echo}, {fmt.Sprintf("[::1]:%d", portEcho), echo},
		{fmt.Sprintf("127.0.0.1:%d", portOnly4), echo}, {fmt.Sprintf("127.0.0.1:%d", portSource), source},
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

// serveProxy is the proxy in a process of its own.
func serveProxy() error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portProxy))
	if err != nil {
		return err
	}
	s := &proxy.Server{Dial: (&eyeballs.Dialer{}).DialContext}
	fmt.Println("ready")
	return s.Serve(l)
}

// loopbackUp starts the network of a fresh namespace.
func loopbackUp() error {
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)
