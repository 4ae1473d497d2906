package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// config sets how long everything takes.
type config struct {
	weir     string // the binary
	only     string // parts of names
	calm     time.Duration
	floodFor time.Duration
	loadFor  time.Duration
	beside   time.Duration // how long the same attack lasts on what stands beside Weir
	restarts int
	pods     int
	short    bool      // one rate of each flood, Weir alone, no upgrade to another layout
	weirs    [2]string // binaries with different layouts of their maps
	out      io.Writer
}

func main() {
	c := config{out: os.Stdout}
	flag.StringVar(&c.weir, "weir", "bin/weir", "the `binary` under siege")
	flag.StringVar(&c.only, "only", "",
		"run scenarios with `text` in their names; several are separated by commas")
	flag.DurationVar(&c.calm, "calm", 2*time.Second,
		"how long the work before an attack is measured")
	flag.DurationVar(&c.floodFor, "flood", time.Minute, "how long each flood lasts")
	flag.DurationVar(&c.loadFor, "load", 2*time.Minute, "how long each load lasts")
	flag.DurationVar(&c.beside, "beside", 8*time.Second,
		"how long each flood and load lasts without Weir")
	flag.IntVar(&c.restarts, "restarts", 200, "restarts of each kind")
	flag.IntVar(&c.pods, "pods", 12, "pods while the agent is restarted")
	flag.BoolVar(&c.short, "short", false, "Weir alone, one rate of each flood")
	chaos := flag.Duration("chaos", 0, "disturb a host at random for a `time` instead")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the order of disturbances")
	flag.Parse()
	if *chaos > 0 {
		os.Exit(c.chaos(*chaos, *seed))
	}
	began := time.Now()
	missed, err := c.run()
	fmt.Fprintf(c.out, "\ntook %v\n", time.Since(began).Round(time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
	if missed > 0 {
		fmt.Fprintf(os.Stderr, "siege: %d targets missed\n", missed)
		os.Exit(1)
	}
}

// chaos disturbs a host for a time and returns the exit status.
func (c config) chaos(d time.Duration, seed uint64) int {
	fmt.Fprintf(c.out, "seed %d\n", seed)
	began := time.Now()
	violations, err := c.chaosFor(d, len(disturbances), seed)
	fmt.Fprintf(c.out, "took %v\n", time.Since(began).Round(time.Second))
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, "siege: violation:", v)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
	}
	if err != nil || len(violations) > 0 {
		return 1
	}
	fmt.Fprintln(c.out, "no violation")
	return 0
}

// run runs everything that is asked for and returns how many targets were missed.
func (c config) run() (missed int, err error) {
	if err := raiseFiles(); err != nil {
		return 0, err
	}
	if err := c.checkOnly(); err != nil {
		return 0, err
	}
	var all []line
	for _, part := range []func() ([]line, error){c.floodTable, c.loadTable, c.restartTable} {
		lines, err := part()
		all = append(all, lines...)
		if err != nil {
			return 0, err
		}
	}
	return c.summary(all), nil
}

// names lists all scenarios.
func names() (all []string) {
	for _, k := range restarts {
		all = append(all, k.title())
	}
	for _, s := range slices.Concat(floods, blinds) {
		all = append(all, s.name)
	}
	for _, l := range loads {
		all = append(all, l.name)
	}
	return all
}

// checkOnly refuses a choice that chooses nothing.
func (c config) checkOnly() error {
	for text := range strings.SplitSeq(c.only, ",") {
		if !slices.ContainsFunc(names(), func(name string) bool {
			return strings.Contains(name, text)
		}) {
			return fmt.Errorf("no scenario has %q in its name; there are:\n  %s", text,
				strings.Join(names(), "\n  "))
		}
	}
	return nil
}
