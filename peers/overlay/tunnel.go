package main

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/overlay"
)

// tunnel is two nodes of one kind, running in two namespaces.
type tunnel struct {
	kind  string
	ends  [2]*nstest.Node
	procs [2]*nstest.Cmd
}

func addr(net string, i int) string { return fmt.Sprintf("10.%s.0.%d", net, i+1) }

// openTunnel starts both nodes. uso says whether UDP super packets pass the wire whole.
func openTunnel(lab *nstest.Lab, kind string, uso bool) (*tunnel, error) {
	t := &tunnel{kind: kind}
	for i := range t.ends {
		n, err := lab.AddNode(string(rune('a' + i)))
		if err != nil {
			return nil, err
		}
		t.ends[i] = n
	}
	prefix := func(i int) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(addr("98", i) + "/24")} }
	if err := lab.AddLink(nstest.End{Node: t.ends[0], Iface: "wire", Addrs: prefix(0)}, nstest.End{Node: t.ends[1], Iface: "wire", Addrs: prefix(1)}); err != nil {
		return nil, err
	}
	var keys [2]overlay.Key
	for i := range keys {
		var err error
		if keys[i], err = overlay.NewPrivateKey(); err != nil {
			return nil, err
		}
	}
	for i, n := range t.ends {
		if !uso {
			if out, err := n.Command("ethtool", "-K", "wire", "tx-udp-segmentation", "off").CombinedOutput(); err != nil {
				return nil, fmt.Errorf("ethtool: %w: %s", err, out)
			}
		}
		if err := t.startNode(i, n, keys); err != nil {
			return nil, err
		}
	}
	return t, t.await()
}

func (t *tunnel) startNode(i int, n *nstest.Node, keys [2]overlay.Key) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := n.Command(self, "node", t.kind, keys[i].String(), keys[1-i].Public().String(),
		fmt.Sprintf("%s:%d", addr("98", 1-i), port), addr("99", 1-i)+"/32")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.procs[i] = cmd
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		return fmt.Errorf("%s: node said %q: %v", t.kind, line, err)
	}
	for _, args := range [][]string{
		{"addr", "add", addr("99", i) + "/32", "dev", "tunnel"},
		{"link", "set", "tunnel", "up"},
		{"route", "replace", addr("99", 1-i) + "/32", "dev", "tunnel"},
	} {
		if out, err := n.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// await waits until a ping comes back: the handshake is done then.
func (t *tunnel) await() error {
	for range 20 {
		if t.ends[0].Command("ping", "-c1", "-W1", addr("99", 1)).Run() == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: no ping through the tunnel", t.kind)
}

// cpu is what both nodes used so far.
func (t *tunnel) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, p := range t.procs {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		for _, k := range []int{11, 12} { // utime, stime
			n, err := strconv.ParseInt(f[k], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100
		}
	}
	return sum, nil
}
