// Bench-cluster measures weir-store with many hosts. It runs the real program with its embedded
// etcd. The hosts are in this process with the real client, real TLS connections, and a whole copy
// each, with its guard. They leave out what a host does with a change afterwards: the checks of
// package cluster, the tables and the disk. One host is measured alone with the checks. Bare etcd
// watches in the same run are the peer. As root it also measures hosts that enforce rules in the
// kernel, with packets. It prints Markdown tables. The last line is the worst ratio of a target to
// what was measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	b := &bench{}
	flag.IntVar(&b.hosts, "hosts", 1000, "how many hosts")
	flag.IntVar(&b.whole, "whole", 1000, "how many of them have a copy; the others read "+
		"frames, so that a small machine measures weir-store rather than its hosts")
	flag.IntVar(&b.pods, "pods", 10000, "how many pods they have together")
	flag.StringVar(&b.program, "weir-store", "../../bin/weir-store", "the program")
	flag.StringVar(&b.weir, "weir", "../../bin/weir", "the program that hosts with kernels run")
	only := flag.String("only", "", "store: without hosts with kernels; kernels: only these")
	flag.BoolVar(&b.quick, "quick", false, "shorter measurements, which are not to be kept")
	memberDir := flag.String("member", "", "run an etcd in this directory until standard "+
		"input ends")
	flag.Parse()
	if *memberDir != "" {
		os.Exit(member(*memberDir))
	}
	if err := b.run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench-cluster:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	hosts, pods int
	whole       int
	program     string
	weir        string
	quick       bool
	dial        func(context.Context, string, string) (net.Conn, error)

	dir     string
	address string
	store   *exec.Cmd
	begin   time.Time // of all times that values carry
	worst   float64
	begun   begun

	versions uint64 // that were written
}

func (b *bench) run(only string) (err error) {
	if !slices.Contains([]string{"", "store", "kernels"}, only) {
		return fmt.Errorf("-only: there is no part %q; there are store, kernels", only)
	}
	if b.dir, err = os.MkdirTemp("", "weir"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.begin, b.worst, b.begun.at = time.Now(), 1e9, map[int64]beginning{}
	b.dial = new(net.Dialer).DialContext
	b.whole = min(b.whole, b.hosts)
	fmt.Printf("%d hosts with %d pods, %d of them with a copy. Hosts and weir-store\nshare %s.\n",
		b.hosts, b.pods, b.whole, processors())
	fmt.Println("Each host has the real client, a TLS connection and a guarded copy of its own; " +
		"the checks of what\nit reads, its tables and its disk are left out. A host alone has " +
		"the checks.")
	if only != "kernels" {
		err = b.withStore()
	}
	if err == nil && only != "store" {
		err = b.nodes()
	}
	if err == nil {
		fmt.Printf("\nworst ratio: %.2f\n", b.worst)
	}
	return err
}

// init makes the cluster.
func (b *bench) init() error {
	if err := b.weirStore("init", "-name", "a", "-address", b.address, "-pool",
		"10.128.0.0/9:24", "-admin-file", filepath.Join(b.dir, "admin.pem")).Run(); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

// withStore measures weir-store and its peer.
func (b *bench) withStore() (err error) {
	if b.address, err = freeAddress(); err != nil {
		return err
	}
	if err := b.init(); err != nil {
		return err
	}
	b.store = b.weirStore("serve")
	if err := b.store.Start(); err != nil {
		return err
	}
	defer func() {
		_ = b.store.Process.Kill() // it is the end anyway
		_ = b.store.Wait()
	}()
	if err := b.ours(); err != nil {
		return err
	}
	return b.peer()
}

func (b *bench) weirStore(args ...string) *exec.Cmd {
	args = append([]string{args[0], "-dir", filepath.Join(b.dir, "store")}, args[1:]...)
	c := exec.Command(b.program, args...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// row prints what was measured beside its target. Smaller is better.
func (b *bench) row(what string, measured, target float64, unit string) {
	ratio := "-"
	if target > 0 {
		r := target / max(measured, 1e-9)
		b.worst = min(b.worst, r)
		ratio = fmt.Sprintf("%.2f", r)
	}
	text := "-"
	if target > 0 {
		text = fmt.Sprintf("%.4g %s", target, unit)
	}
	fmt.Printf("| %s | %.3g %s | %s | %s |\n", what, measured, unit, text, ratio)
}

func heading(title string) {
	fmt.Printf("\n### %s\n\n| what | measured | target | ratio |\n| --- | --- | --- | --- |\n",
		title)
}

func processors() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "this machine"
	}
	n, name := 0, ""
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(key, "model name") {
			n, name = n+1, strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%d processors (%s)", n, name)
}
