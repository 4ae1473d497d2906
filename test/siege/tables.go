package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// line is one of the summary: what happened to legitimate work.
type line struct {
	scenario, by  string
	before        float64 // operations a second; 0: not measured
	during        float64
	refused, lost int64
	kept          int
	missed        int // targets
}

// summary prints all lines in one table and returns how many targets were missed.
func (c config) summary(all []line) (missed int) {
	fmt.Fprint(c.out, "\n### All scenarios\n\n| scenario | | legitimate work before, /s | during, "+
		"/s | refused | lost of what stays open | target |\n| --- | --- | --- | --- | --- | --- | "+
		"--- |\n")
	for _, l := range all {
		before, lost, held := "-", "-", "-"
		if l.before > 0 {
			before = fmt.Sprintf("%.0f", l.before)
		}
		if l.kept > 0 {
			lost = fmt.Sprintf("%d of %d", l.lost, l.kept)
		}
		if l.by == "weir" {
			held = "held"
		}
		if l.missed > 0 {
			held = "MISSED"
		}
		missed += l.missed
		fmt.Fprintf(c.out, "| %s | %s | %s | %.0f | %d | %s | %s |\n", l.scenario, l.by, before,
			l.during, l.refused, lost, held)
	}
	return missed
}

// restartTable runs the restarts in two groups: what takes long, and the rest one after the other.
func (c config) restartTable() (all []line, err error) {
	var wanted []restart
	for _, k := range restarts {
		if c.wants(k.title()) {
			wanted = append(wanted, k)
		}
	}
	if c.weirs, err = c.twoLayouts(wanted); err != nil {
		return nil, err
	}
	defer c.removeLayouts()
	rows, errs := make([]restartRow, len(wanted)), make([]error, len(wanted))
	var wg sync.WaitGroup
	for _, upgrade := range []bool{false, true} {
		wg.Go(func() {
			for i, k := range wanted {
				if k.upgrade == upgrade {
					rows[i], errs[i] = c.runRestart(k)
				}
			}
		})
	}
	wg.Wait()
	for i, k := range wanted {
		if errs[i] != nil {
			return all, fmt.Errorf("%s: %w", k.title(), errs[i])
		}
		if rows[i].probes == 0 || rows[i].ok == 0 {
			return all, errors.New("nothing was probed, or no work was done")
		}
		if i == 0 {
			fmt.Fprint(c.out, "\n### Restarts of the agent under probes of refused ports\n\n"+
				"| restart | times | to ready, median | probes | answered (target 0) | new "+
				"connections | failed (target 0) | later than 0.9 s (target 0) | lost of kept "+
				"(target 0) "+
				"| what |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
		}
		all = append(all, c.restartLine(k, rows[i]))
	}
	return all, nil
}

func (c config) restartLine(k restart, r restartRow) line {
	l := line{scenario: k.title(), by: "weir", during: float64(r.ok) / r.took.Seconds(),
		refused: r.failed, lost: int64(r.lost), kept: r.kept}
	fmt.Fprintf(c.out, "| %s | %d | %.0f ms | %d | %s | %d | %s | %s | %s of %d |%s |\n", r.kind,
		r.times, r.median.Seconds()*1000, r.probes, checkAtMost(&l.missed, r.passed, 0), r.ok,
		checkAtMost(&l.missed, r.failed, 0), checkAtMost(&l.missed, r.slow, 0),
		checkAtMost(&l.missed, int64(r.lost), 0), r.kept, r.why)
	return l
}

// contenders are Weir, nftables and none.
func (c config) contenders() []contender {
	weir := contender{"weir", c.raiseWeir, true}
	if c.short {
		return []contender{weir}
	}
	return []contender{{"none", func(*testbed, *scenario) error {
		return nil
	}, false}, {"nft", raiseNft, true}, weir}
}

func (c config) floodTable() (all []line, err error) {
	for _, s := range slices.Concat(floods, blinds) {
		if !c.wants(s.name) {
			continue
		}
		rates := s.rates
		if c.short {
			rates = rates[:1]
		}
		for _, rate := range rates {
			var none row
			for _, by := range c.contenders() {
				if by.name != "weir" && rate != slices.Max(rates) {
					continue // at the highest rate they show all that they can
				}
				r, err := c.runFlood(&s, by, rate)
				if err != nil {
					return all, fmt.Errorf("%s, %s: %w", s.name, by.name, err)
				}
				if by.name == "none" {
					none = r
				}
				if len(all) == 0 {
					fmt.Fprint(c.out, "### Floods and guesses\n\n| attack | packets/s | reached "+
						"| | work/s before | during | refused (target: the share that none "+
						"loses) | "+
						"later than 0.9 s | lost of kept (target 0) | ns a packet | lack of "+
						"space |\n"+
						"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
				}
				all = append(all, c.floodLine(r, none))
			}
		}
	}
	return all, nil
}

// floodLine prints a row. What fails without any firewall is the machine's: Weir may lose as large
// a share.
func (c config) floodLine(r, none row) line {
	l := line{scenario: fmt.Sprintf("%s, %d/s", r.scenario, r.rate), by: r.contender,
		before: r.before, during: r.during, refused: r.failed, lost: int64(r.lost), kept: r.kept}
	failed, gone := fmt.Sprint(r.failed), fmt.Sprint(r.lost)
	if r.contender == "weir" {
		allowed := int64(0)
		if none.done > 0 {
			allowed = (none.failed*r.done + none.done - 1) / none.done
		}
		failed, gone = checkAtMost(&l.missed, r.failed, allowed),
			checkAtMost(&l.missed, int64(r.lost), 0)
	}
	fmt.Fprintf(c.out, "| %s | %d | %.0f | %s | %.0f | %.0f | %s | %d | %s of %d | %d |%s |\n",
		r.scenario, r.rate, r.reached, r.contender, r.before, r.during, failed, r.slow, gone,
		r.kept, r.cost.Nanoseconds(), r.why)
	return l
}

func (c config) loadTable() (all []line, err error) {
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
				return all, fmt.Errorf("%s, %s: %w", l.name, by.name, err)
			}
			if len(all) == 0 {
				fmt.Fprint(c.out, "\n### Loads through translations\n\n| load | asked for, /s | | "+
					"done, /s | refused (target 0) | later than 0.9 s | states before | after | "+
					"back within | target | lack of space (target none) |\n"+
					"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
			}
			all = append(all, c.loadLine(l, r))
		}
	}
	return all, nil
}

func (c config) loadLine(k load, r loadRow) line {
	l := line{scenario: k.name, by: r.contender, during: r.rate, refused: r.failed}
	failed, back := fmt.Sprint(r.failed), "-"
	if r.contender == "weir" {
		failed, back = checkAtMost(&l.missed, r.failed, 0), fmt.Sprintf("%.1f s", r.back.Seconds())
		if r.why != "" { // what was sent again and came through was refused all the same
			l.missed++
			r.why += " MISSED"
		}
		if r.after > r.before+level {
			l.missed++
			back += " MISSED"
		}
	}
	fmt.Fprintf(c.out, "| %s | %d | %s | %.0f | %s | %d | %d | %d | %s | %.0f s |%s |\n", k.name,
		k.rate, r.contender, r.rate, failed, r.slow, r.before, r.after, back, k.back.Seconds(),
		r.why)
	return l
}

// checkAtMost shows a number that may be at most some, and counts when it is more.
func checkAtMost(missed *int, n, atMost int64) string {
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

func (c config) wants(name string) bool {
	return slices.ContainsFunc(strings.Split(c.only, ","), func(text string) bool {
		return strings.Contains(name, text)
	})
}
