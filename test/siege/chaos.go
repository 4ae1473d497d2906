package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// base is what an agent holds, to be compared before and after the disturbances.
type base struct {
	memory        int // KiB
	files         int
	bpf           int // of the files
	goroutines    int
	pins          int
	links, routes []string
}

func (x *chaos) measure() (b base, err error) {
	pid := fmt.Sprint(x.agentNode.agent.Process.Pid)
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return b, err
	}
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "RssAnon: %d kB", &b.memory)
	}
	files, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	if err != nil {
		return b, err
	}
	b.files = len(files)
	for _, f := range files {
		to, err := os.Readlink(filepath.Join("/proc", pid, "fd", f.Name()))
		if err == nil && strings.HasPrefix(to, "anon_inode:bpf") {
			b.bpf++
		}
	}
	if b.goroutines, err = x.goroutines(); err != nil {
		return b, err
	}
	pins, err := os.ReadDir(x.agentNode.bpffs)
	if err != nil {
		return b, err
	}
	b.pins = len(pins)
	if b.links, err = x.lines("ip", "-o", "link", "show"); err != nil {
		return b, err
	}
	b.routes, err = x.lines("ip", "route", "show", "table", "all")
	// of chance
	b.routes = slices.DeleteFunc(b.routes, func(r string) bool {
		return strings.HasPrefix(r, "local fe80:")
	})
	return b, err
}

// goroutines asks the agent's metrics.
func (x *chaos) goroutines() (n int, err error) {
	transport := &http.Transport{DialContext: x.host.DialContext, DisableKeepAlives: true}
	r, err := (&http.Client{Transport: transport, Timeout: longTimeout}).Get(
		"http://" + metricsAt + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "go_goroutines %d", &n)
	}
	if err == nil && n == 0 {
		err = errors.New("the metrics have no go_goroutines")
	}
	return n, err
}

// lines are the first words of a command's lines, sorted.
func (x *chaos) lines(name string, args ...string) (all []string, err error) {
	out, err := x.host.Command(name, args...).Output()
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if name == "ip" && args[0] == "-o" { // index and flags may change
			fields = fields[1:2]
		}
		all = append(all, strings.Join(fields, " "))
	}
	slices.Sort(all)
	return all, err
}

// violations compares a base with a later one.
func (b base) violations(later base) (all []string) {
	if later.memory > b.memory+64<<10 {
		all = append(all, fmt.Sprintf("memory: %d KiB before, %d after", b.memory, later.memory))
	}
	if later.files > b.files+8 {
		all = append(all, fmt.Sprintf("descriptors: %d before, %d after", b.files, later.files))
	}
	if later.bpf > b.bpf {
		all = append(all, fmt.Sprintf("bpf objects: %d before, %d after", b.bpf, later.bpf))
	}
	if later.goroutines > b.goroutines+16 {
		all = append(all, fmt.Sprintf("goroutines: %d before, %d after", b.goroutines,
			later.goroutines))
	}
	if later.pins != b.pins {
		all = append(all, fmt.Sprintf("pins: %d before, %d after", b.pins, later.pins))
	}
	if !slices.Equal(b.links, later.links) {
		all = append(all, fmt.Sprintf("links: %q before, %q after", b.links, later.links))
	}
	if !slices.Equal(b.routes, later.routes) {
		all = append(all, fmt.Sprintf("routes: before\n%s\nafter\n%s", strings.Join(b.routes, "\n"),
			strings.Join(later.routes, "\n")))
	}
	return all
}

// chaosFor disturbs a host at random for a time, in so many ways at least, and returns what was
// violated.
func (c config) chaosFor(d time.Duration, least int, seed uint64) (violations []string, err error) {
	x, err := newChaos(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	x.begin()
	if err := x.awaitStreams(); err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second)
	before, err := x.measure()
	if err != nil {
		return nil, err
	}
	before.bpf++ // the empty table of role=churn waits to be removed together with others
	r := rand.New(rand.NewPCG(seed, 1))
	counts := map[string]int{}
	var order []int
	for end, n := time.Now().Add(d), 0; n < least || time.Now().Before(end); n++ {
		if len(order) == 0 {
			order = r.Perm(len(disturbances))
		}
		k := disturbances[order[0]]
		order = order[1:]
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05.0"), k.name)
		for _, kind := range k.breaks {
			x.excuse(kind)
		}
		if err := k.do(x, r); err != nil {
			violations = append(violations,
				fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.0"), k.name, err))
			if x.agentNode.agent == nil { // the agent has to be there for the rest
				if err := x.agentNode.start(); err != nil {
					return violations, err
				}
			}
		}
		for _, kind := range k.breaks {
			x.excuse(kind)
		}
		counts[k.name]++
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	}
	return append(violations, x.end(before, counts)...), nil
}

// end waits until all is quiet, compares, and prints what happened.
func (x *chaos) end(before base, counts map[string]int) (violations []string) {
	if err := x.awaitHealthy(); err != nil {
		violations = append(violations, err.Error())
	}
	var differs []string
	for deadline := time.Now().Add(longTimeout); ; time.Sleep(500 * time.Millisecond) {
		after, err := x.measure()
		if err != nil {
			return append(violations, err.Error())
		}
		was := differs
		if differs = before.violations(after); len(differs) == 0 || time.Now().After(deadline) {
			break
		}
		if !slices.Equal(differs, was) {
			fmt.Fprintf(os.Stderr, "not back yet: %s\n", strings.Join(differs, "\n"))
		}
	}
	violations = append(violations, differs...)
	blocks := map[string]int64{}
	for deadline := time.Now().Add(longTimeout); ; time.Sleep(100 * time.Millisecond) {
		clear(blocks)
		for _, s := range x.streams {
			blocks[s.work.name] += s.blocks.Load()
		}
		if !slices.Contains(slices.Collect(maps.Values(blocks)), 0) || time.Now().After(deadline) {
			break
		}
	}
	close(x.over)
	if n := x.passed.count(); n > 0 {
		violations = append(violations,
			fmt.Sprintf("%d of %d probes of refused ports were answered:%s", n, x.probed.Load(),
				&x.passed))
	}
	for _, s := range x.streams {
		s.mu.Lock()
		violations = append(violations, s.broken...)
		s.mu.Unlock()
	}
	fmt.Fprintf(x.config.out,
		"### Chaos: seed and disturbances\n\n| disturbance | times |\n| --- | --- |\n")
	for _, k := range disturbances {
		fmt.Fprintf(x.config.out, "| %s | %d |\n", k.name, counts[k.name])
	}
	fmt.Fprintf(x.config.out,
		"\nprobes of refused ports: %d, answered %d\nblocks of 4 KiB that came back whole: %v\n",
		x.probed.Load(), x.passed.count(), blocks)
	for kind, n := range blocks {
		if n == 0 {
			violations = append(violations, "no block came back: "+kind)
		}
	}
	return violations
}
