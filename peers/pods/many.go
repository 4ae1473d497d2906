package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/peers/internal/memory"
)

// edge is how many of the first and of the last ADDs are compared.
const edge = 50

// agentNode is a node with a whole agent, to which pods come by the plugin.
type agentNode struct {
	*nstest.Node
	b     *bench
	root  string
	agent *nstest.Cmd
	pods  []*nstest.Node
	first []netip.Addr // addresses of the first two pods
}

func (b *bench) agentNode(name string) (k *agentNode, err error) {
	k = &agentNode{b: b, root: filepath.Join(b.dir, name)}
	if k.Node, err = b.lab.AddNode(name); err != nil {
		return nil, err
	}
	outside, err := b.lab.AddNode(name + "-out")
	if err != nil {
		return nil, err
	}
	if err := b.lab.AddLink(nstest.End{Node: k.Node, Iface: "eth0"},
		nstest.End{Node: outside, Iface: "eth0"}); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(k.root, 0o755); err != nil {
		return nil, err
	}
	bpffs, unmount, err := nstest.MountBpffs()
	if err != nil {
		return nil, err
	}
	b.undo = append(b.undo, unmount)
	for file, text := range map[string]string{"rules": rules(),
		"weir.toml": "[pods]\nranges = [\"10.250.0.0/16\"]\n"} {
		if err := os.WriteFile(filepath.Join(k.root, file), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	weir, err := filepath.Abs(b.weir)
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(weir, filepath.Join(k.root, "weir-cni")); err != nil {
		return nil, err
	}
	k.agent = k.Command(weir, "--root", k.root, "--bpffs", filepath.Join(bpffs, "weir"), "up",
		"--iface", "eth0",
		"--rules", filepath.Join(k.root, "rules"), "--config", filepath.Join(k.root, "weir.toml"))
	if err := k.agent.Start(); err != nil {
		return nil, err
	}
	agent := k.agent
	b.undo = append(b.undo, func() error {
		return errors.Join(agent.Process.Signal(syscall.SIGTERM), agent.Wait())
	})
	out, err := k.Command(weir, "--root", k.root, "status", "--wait", "20s").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("weir status: %w: %s", err, out)
	}
	return k, nil
}

// plugin calls the plugin for a pod and returns how long it took.
func (k *agentNode) plugin(command string, n *nstest.Node) (time.Duration, []byte, error) {
	c := k.Command(filepath.Join(k.root, "weir-cni"))
	c.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + n.Name(),
		"CNI_NETNS=" + n.Path(),
		"CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni"}
	c.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"many","type":"weir-cni","root":%q}`, k.root))
	began := time.Now()
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return time.Since(began), out, err
}

// addPods adds pods and returns how many milliseconds each took.
func (k *agentNode) addPods(pods int) (took []float64, err error) {
	for range pods {
		n, err := k.b.lab.AddNode(fmt.Sprint(k.Name(), "-p", len(k.pods)))
		if err != nil {
			return nil, err
		}
		d, out, err := k.plugin("ADD", n)
		if err != nil {
			return nil, err
		}
		took = append(took, float64(d.Microseconds())/1e3)
		if k.pods = append(k.pods, n); len(k.first) < 2 {
			var r struct {
				IPs []struct{ Address netip.Prefix }
			}
			if err := json.Unmarshal(out, &r); err != nil || len(r.IPs) == 0 {
				return nil, fmt.Errorf("no address in %s: %w", out, err)
			}
			k.first = append(k.first, r.IPs[0].Address.Addr())
		}
	}
	return took, nil
}

// removePods removes the newest pods and returns how many milliseconds each took.
func (k *agentNode) removePods(pods int) (took []float64, err error) {
	for range pods {
		last := len(k.pods) - 1
		d, _, err := k.plugin("DEL", k.pods[last])
		if err != nil {
			return nil, err
		}
		k.pods, took = k.pods[:last], append(took, float64(d.Microseconds())/1e3)
	}
	return took, nil
}

func (k *agentNode) variant(name string) *variant {
	p := pair{from: k.pods[0], on: k.pods[1], to: netip.AddrPortFrom(k.first[1], port), port: port,
		cpu: cpu}
	return &variant{name: name, turn: p.transactions}
}

// manyPods measures the cost of a thousand pods: the time of ADD and DEL, a packet, and the agent's
// memory.
func (b *bench) manyPods() error {
	few, err := b.agentNode("few")
	if err != nil {
		return err
	}
	many, err := b.agentNode("many")
	if err != nil {
		return err
	}
	if _, err := few.addPods(2); err != nil {
		return err
	}
	adds, err := many.addPods(b.pods)
	if err != nil {
		return err
	}
	variants := []*variant{many.variant(fmt.Sprintf("two of %d pods", b.pods)),
		few.variant("two pods")}
	if err := b.play(variants); err != nil {
		return err
	}
	// The kernel's grace periods, for which each program that is attached waits, take longer or
	// shorter from one minute to the next.
	var here, there []float64
	for range edge {
		a, err := few.addPods(1)
		if err != nil {
			return err
		}
		c, err := many.addPods(1)
		if err != nil {
			return err
		}
		here, there = append(here, a...), append(there, c...)
	}
	private, all, err := memory.Of(many.agent.Process.Pid)
	if err != nil {
		return err
	}
	dels, err := many.removePods(edge)
	if err != nil {
		return err
	}
	print("Many pods on one host, one processor", "transactions/s", 1, variants,
		[]target{{beside: "two pods", rate: 1}})
	first, last := quartile(adds[:edge], 2), quartile(adds[len(adds)-edge:], 2)
	fmt.Printf("\n| with %d pods | | target |\n| --- | --- | --- |\n", b.pods)
	fmt.Printf("| ADD, the first %d, median ms | %.1f | < 60 |\n"+
		"| ADD, the last %d, median ms | %.1f | < 60 |\n", edge, first, edge, last)
	fmt.Printf("| last to first | %.2f | <= 1.20 |\n"+
		"| ADD there to ADD on a host with few pods, in turn, median | %.2f | |\n"+
		"| DEL, the last %d, median ms | %.1f | < 40 |\n", last/first,
		quartile(ratios(there, here), 2), edge, quartile(dels, 2))
	fmt.Printf("| memory of the agent, MiB | %.0f, of which %.0f its own | < 100 |\n", all, private)
	worst = min(worst, 1.2/(last/first), 60/last, 40/quartile(dels, 2), 100/all)
	return nil
}
