package main

import (
	"fmt"
	"slices"
)

// median of what get takes from each outcome.
func median(list []outcome, get func(outcome) float64) float64 {
	v := spread(list, get)
	return v[len(v)/2]
}

func spread(list []outcome, get func(outcome) float64) []float64 {
	var v []float64
	for _, o := range list {
		v = append(v, get(o))
	}
	slices.Sort(v)
	return v
}

func rate(o outcome) float64 { return o.rate }
func cpu(o outcome) float64  { return o.cpu }
func p99(o outcome) float64  { return o.p99 }
func lost(o outcome) float64 { return o.lost }

// paired is the median over the rounds of a's rate divided by b's in the same round: what disturbs
// the machine for a while disturbs both.
func paired(a, b []outcome, get func(outcome) float64) float64 {
	var v []float64
	for i := range a {
		v = append(v, get(a[i])/get(b[i]))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// target is a ratio that must be reached, against whom.
type target struct {
	against  string
	rate     float64 // ours divided by theirs; 0 is none
	cpu, p99 float64 // theirs divided by ours; 0 is none
}

var targets = map[string][]target{
	"tcp1":   {{fork, 1.3, 1.3, 0}, {upstream, 1.6, 1.6, 0}, {weir, 0.97, 0, 0}},
	"tcp8":   {{fork, 1.3, 1.3, 0}, {upstream, 1.6, 1.6, 0}},
	"nouso":  {{fork, 2, 0, 0}, {upstream, 2, 0, 0}},
	"udp200": {{fork, 1.5, 0, 0}, {upstream, 3, 0, 0}},
	"ping":   {{upstream, 0, 0, 1}, {fork, 0, 0, 1}},
}

// print writes the table, and returns the smallest ratio of the filtered device, each divided by
// its target.
func (t table) print(r map[string][]outcome) float64 {
	fmt.Printf("\n### %s\n\n| what | %s min / median / max | CPU ns | sent again per GB | p99 ms "+
		"| disturbed |\n| --- | --- | --- | --- | --- | --- |\n", t.title, t.unit)
	for _, k := range kinds {
		if len(r[k]) == 0 {
			continue
		}
		v := spread(r[k], rate)
		late := ""
		if t.work.ping {
			late = fmt.Sprintf("%.2f", median(r[k], p99))
		}
		disturbed := 0
		for _, o := range r[k] {
			if o.foreign > foreignLimit {
				disturbed++
			}
		}
		fmt.Printf("| %s | %.2f / %.2f / %.2f | %.2f | %.0f | %s | %d of %d |\n", k, v[0]/t.scale,
			v[len(v)/2]/t.scale, v[len(v)-1]/t.scale, median(r[k], cpu), median(r[k],
				lost), late, disturbed, len(v))
	}
	fmt.Print("\n| weir+filter against | rate ratio | target | CPU ratio | target | p99 ratio | " +
		"target |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	worst, ours := 1e9, r[filtered]
	for _, b := range targets[t.key] {
		if len(ours) == 0 || len(r[b.against]) == 0 {
			continue // not asked for
		}
		row := fmt.Sprintf("| %s ", b.against)
		for _, c := range []struct{ got, must float64 }{
			{paired(ours, r[b.against], rate), b.rate},
			{paired(r[b.against], ours, cpu), b.cpu},
			{paired(r[b.against], ours, p99), b.p99},
		} {
			if c.must == 0 {
				row += "| | "
				continue
			}
			row += fmt.Sprintf("| %.2f | %.2f ", c.got, c.must)
			worst = min(worst, c.got/c.must)
		}
		fmt.Println(row + "|")
	}
	return worst
}
