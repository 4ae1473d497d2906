package main

import (
	"errors"
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
	settle   time.Duration // how long the table may take to be at its level again after a load
	restarts int
	pods     int
	short    bool // one rate of each flood, Weir alone
	out      io.Writer
}

func main() {
	c := config{out: os.Stdout, settle: settle}
	flag.StringVar(&c.weir, "weir", "bin/weir", "the `binary` under siege")
	flag.StringVar(&c.only, "only", "",
		"run scenarios with `text` in their names; several are separated by commas")
	flag.DurationVar(&c.calm, "calm", 3*time.Second,
		"how long the work before an attack is measured")
	flag.DurationVar(&c.floodFor, "flood", time.Minute, "how long each flood lasts")
	flag.DurationVar(&c.loadFor, "load", 2*time.Minute, "how long each load lasts")
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
		fmt.Fprintf(os.Stderr, "siege: %d bars missed\n", missed)
		os.Exit(1)
	}
}

// chaos disturbs a host for a time and returns the exit status.
func (c config) chaos(d time.Duration, seed uint64) int {
	fmt.Fprintf(c.out, "seed %d\n", seed)
	began := time.Now()
	violations, err := c.chaosFor(d, seed)
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

// run runs everything that is asked for and returns how many bars were missed.
func (c config) run() (missed int, err error) {
	if err := raiseFiles(); err != nil {
		return 0, err
	}
	if err := c.checkOnly(); err != nil {
		return 0, err
	}
	for _, part := range []func() (int, error){c.restartTable, c.floodTable, c.loadTable} {
		n, err := part()
		missed += n
		if err != nil {
			return missed, err
		}
	}
	return missed, nil
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
	for _, text := range strings.Split(c.only, ",") {
		if !slices.ContainsFunc(names(), func(name string) bool {
			return strings.Contains(name, text)
		}) {
			return fmt.Errorf("no scenario has %q in its name; there are:\n  %s", text,
				strings.Join(names(), "\n  "))
		}
	}
	return nil
}

func (c config) wants(name string) bool {
	return slices.ContainsFunc(strings.Split(c.only, ","), func(text string) bool {
		return strings.Contains(name, text)
	})
}

func (k restart) title() string { return "restart, " + k.name }

func (c config) restartTable() (missed int, err error) {
	title := "### Restarts of the agent under probes of refused ports\n\n" +
		"| restart | times | to ready, median | probes | answered (bar 0) | new connections | " +
		"failed (bar 0) | later than 0.9 s (bar 0) | lost of kept (bar 0) | what |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, k := range restarts {
		if !c.wants(k.title()) {
			continue
		}
		r, err := c.runRestart(k)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", k.title(), err)
		}
		fmt.Fprint(c.out, title)
		title = ""
		fmt.Fprintf(c.out, "| %s | %d | %.0f ms | %d | %s | %d | %s | %s | %s of %d |%s |\n",
			r.kind, r.times, r.median.Seconds()*1000,
			r.probes, bar(&missed, r.passed, 0), r.ok, bar(&missed, r.failed, 0), bar(&missed,
				r.slow, 0), bar(&missed, int64(r.lost), 0), r.kept, r.why)
		if r.probes == 0 || r.ok == 0 {
			return missed, errors.New("nothing was probed, or no work was done")
		}
	}
	return missed, nil
}

// contenders are Weir, nftables and none.
func (c config) contenders() []contender {
	weir := contender{"weir", c.raiseWeir, true}
	if c.short {
		return []contender{weir}
	}
	return []contender{{"none", func(*world, *scenario) error {
		return nil
	}, false}, {"nft", raiseNft, true}, weir}
}

func (c config) floodTable() (missed int, err error) {
	title := "\n### Floods and guesses\n\n" +
		"| attack | packets/s | reached | | work/s before | during | refused (bar: as many as " +
		"with none) | later than 0.9 s | lost of kept (bar 0) | ns a packet | lack of space |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, s := range slices.Concat(floods, blinds) {
		if !c.wants(s.name) {
			continue
		}
		rates := s.rates
		if c.short {
			rates = rates[:1]
		}
		for _, rate := range rates {
			allowed := int64(0)
			for _, by := range c.contenders() {
				r, err := c.runFlood(&s, by, rate)
				if err != nil {
					return missed, fmt.Errorf("%s, %s: %w", s.name, by.name, err)
				}
				fmt.Fprint(c.out, title)
				title = ""
				failed, gone := fmt.Sprint(r.failed), fmt.Sprint(r.lost)
				if by.name == "none" {
					allowed = r.failed
				}
				if by.name == "weir" {
					failed, gone = bar(&missed, r.failed, allowed), bar(&missed, int64(r.lost), 0)
				}
				fmt.Fprintf(c.out,
					"| %s | %d | %.0f | %s | %.0f | %.0f | %s | %d | %s of %d | %d |%s |\n", s.name,
					rate, r.reached, by.name,
					r.before, r.during, failed, r.slow, gone, r.kept, r.cost.Nanoseconds(), r.why)
			}
		}
	}
	return missed, nil
}

func (c config) loadTable() (missed int, err error) {
	title := "\n### Loads through translations\n\n" +
		"| load | asked for, /s | | done, /s | refused (bar 0) | later than 0.9 s | states " +
		"before | after | back within (bar 40 s) | lack of space (bar none) |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, l := range loads {
		if !c.wants(l.name) {
			continue
		}
		for _, by := range c.contenders() {
			if !by.pods {
				continue
			}
			r, err := c.runLoad(l, by)
			if err != nil {
				return missed, fmt.Errorf("%s, %s: %w", l.name, by.name, err)
			}
			fmt.Fprint(c.out, title)
			title = ""
			failed, back := fmt.Sprint(r.failed), fmt.Sprintf("%.1f s", r.back.Seconds())
			if by.name == "weir" {
				failed = bar(&missed, r.failed, 0)
				if r.why != "" { // what was sent again and came through was refused all the same
					missed++
					r.why += " MISSED"
				}
				if r.after > r.before+level {
					missed++
					back += " MISSED"
				}
			}
			fmt.Fprintf(c.out, "| %s | %d | %s | %.0f | %s | %d | %d | %d | %s |%s |\n", l.name,
				l.rate, by.name, r.rate, failed, r.slow,
				r.before, r.after, back, r.why)
		}
	}
	return missed, nil
}

// bar shows a number that may be at most some, and counts when it is more.
func bar(missed *int, n, atMost int64) string {
	if n <= atMost {
		return fmt.Sprint(n)
	}
	*missed++
	return fmt.Sprintf("%d MISSED", n)
}

// medianOf is the middle of some times, 0 of none.
func medianOf(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
