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

// tunnel is two nodes, running in two namespaces.
type tunnel struct {
	kind  string    // for tables
	kinds [2]string // of the nodes
	keys  [2]overlay.Key
	ends  [2]*nstest.Node
	procs [2]*nstest.Cmd
	via   string // where the first node sends to instead of the second; empty for there
}

func addr(net string, i int) string { return fmt.Sprintf("10.%s.0.%d", net, i+1) }

// openTunnel starts two nodes of one kind. uso reports whether UDP GSO packets pass the wire whole.
func openTunnel(lab *nstest.Lab, kind string, uso bool) (*tunnel, error) {
	return openMixed(lab, [2]string{kind, kind}, []string{"98"}, uso)
}

// openMixed starts two nodes, joined by one wire for each network. Of nodes that are not ours, only
// the first is known to the other end.
func openMixed(lab *nstest.Lab, kinds [2]string, wires []string, uso bool) (*tunnel, error) {
	t := &tunnel{kind: kinds[0], kinds: kinds}
	if err := t.wire(lab, wires, uso); err != nil {
		return nil, err
	}
	return t, t.start(wires)
}

// wire makes the nodes' namespaces and what joins them.
func (t *tunnel) wire(lab *nstest.Lab, wires []string, uso bool) error {
	for i := range t.ends {
		n, err := lab.AddNode(string(rune('a' + i)))
		if err != nil {
			return err
		}
		t.ends[i] = n
	}
	for _, net := range wires {
		end := func(i int) nstest.End {
			return nstest.End{Node: t.ends[i], Iface: "wire" + net,
				Addrs: []netip.Prefix{netip.MustParsePrefix(addr(net, i) + "/24")}}
		}
		if err := lab.AddLink(end(0), end(1)); err != nil {
			return err
		}
	}
	if uso {
		return nil
	}
	for _, n := range t.ends {
		if out, err := n.Command("ethtool", "-K", "wire98", "tx-udp-segmentation",
			"off").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool: %w: %s", err, out)
		}
	}
	return nil
}

// start starts both nodes with new keys and waits until they have met.
func (t *tunnel) start(wires []string) error {
	for i := range t.keys {
		var err error
		if t.keys[i], err = overlay.NewPrivateKey(); err != nil {
			return err
		}
	}
	for i := range t.ends {
		if err := t.startNode(i, wires); err != nil {
			return err
		}
	}
	return t.await()
}

// startNode starts one end.
func (t *tunnel) startNode(i int, wires []string) error {
	n := t.ends[i]
	var endpoints []string
	for _, net := range wires {
		endpoints = append(endpoints, fmt.Sprintf("%s:%d", addr(net, 1-i), port))
	}
	if i == 0 && t.via != "" {
		endpoints = []string{t.via}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := n.Command(self, "node", t.kinds[i], t.keys[i].String(), t.keys[1-i].Public().String(),
		strings.Join(endpoints, ","), addr("99", 1-i)+"/32")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.procs[i] = cmd
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil ||
		strings.TrimSpace(line) != "ready" {
		return fmt.Errorf("%s: node said %q: %v", t.kinds[i], line, err)
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
