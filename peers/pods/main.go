package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/peers/internal/only"
)

func main() {
	rounds := flag.Int("rounds", 15, "how often every variant is run")
	slice := flag.Duration("slice", 150*time.Millisecond, "how long a turn is")
	chosen := flag.String("only", "",
		"parts to run, separated by commas: remote, local, published, many")
	weir := flag.String("weir", "../bin/weir", "the binary, for the part many")
	pods := flag.Int("pods", 1000, "how many pods the part many has, at least 100")
	flag.Parse()
	runtime.GOMAXPROCS(8)    // threads that wait in system calls keep their place
	debug.SetGCPercent(-1)   // a collection would wait for them
	debug.SetMemoryLimit(-1) // there is little to collect
	if err := run(&bench{rounds: *rounds, slice: *slice, weir: *weir, pods: *pods},
		*chosen); err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
}

// worst is the smallest quotient of a number and its target.
var worst = 1e9

func run(b *bench, chosen string) (err error) {
	wanted, err := only.Parts(chosen, "remote", "local", "published", "many")
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "weir-pods"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.lab, err = nstest.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, p := range []struct {
		name string
		run  func(*bench) error
	}{{"remote", (*bench).remote}, {"local", (*bench).local}, {"published", (*bench).published},
		{"many", (*bench).manyPods}} {
		if !wanted(p.name) {
			continue
		}
		if err := p.run(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	fmt.Printf("\nworst ratio: %.2f\n", worst)
	return nil
}

// bench holds all hosts and variants.
type bench struct {
	lab    *nstest.Lab
	dir    string
	rounds int
	slice  time.Duration
	weir   string
	pods   int
	undo   []func() error
}

func (b *bench) close() error {
	var errs []error
	for _, f := range slices.Backward(b.undo) {
		errs = append(errs, f())
	}
	return errors.Join(append(errs, b.lab.Close())...)
}

// times are what 98, 99 and 99.5 of 100 transactions took less than: about one of 100 meets an
// interrupt, so that the second tells how many do. All 0: not timed.
type times [3]time.Duration

// variant is one of the things compared: one run of it gives a rate per second and, if it was
// timed, the times of the late transactions.
type variant struct {
	name string
	turn func(time.Duration) (perSecond float64, late times, err error)

	rates []float64
	late  [3][]float64 // us
}

// lateness returns the lower quartile over the rounds of one of the times.
func (w *variant) lateness(n int) float64 { return quartile(w.late[n], 1) }

// play runs every variant in every round, in shuffled order, after a round that does not count.
func (b *bench) play(variants []*variant) error {
	for round := range b.rounds + 1 {
		order := rand.Perm(len(variants))
		for _, i := range order {
			w := variants[i]
			rate, late, err := w.turn(b.slice)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				w.rates = append(w.rates, rate)
				for k := range late {
					w.late[k] = append(w.late[k], float64(late[k])/1e3)
				}
			}
		}
	}
	return nil
}

// target is what the first variant has to reach beside another: at least a rate, at most a p99 (0:
// none).
type target struct {
	beside string
	rate   float64
	p99    float64
}

// print shows what was measured; ratios are those of the first variant to the others.
func print(title, unit string, scale float64, variants []*variant, targets []target) {
	fmt.Printf("\n### %s\n\n| variant | %s | p98, p99, p99.5, us | ratio of %s to it | quartiles "+
		"| "+
		"target |\n| --- | --- | --- | --- | --- | --- |\n", title, unit, variants[0].name)
	for _, w := range variants {
		r := ratios(variants[0].rates, w.rates)
		late := "-"
		if w.lateness(1) > 0 {
			late = fmt.Sprintf("%.1f, %.1f, %.1f", w.lateness(0), w.lateness(1), w.lateness(2))
		}
		wanted := ""
		for _, target := range targets {
			if target.beside != w.name {
				continue
			}
			wanted = fmt.Sprintf(">= %.2f", target.rate)
			worst = min(worst, quartile(r, 2)/target.rate)
			if target.p99 > 0 {
				p := variants[0].lateness(1) / w.lateness(1)
				wanted += fmt.Sprintf(", p99 %.2f <= %.2f", p, target.p99)
				worst = min(worst, target.p99/p)
			}
		}
		fmt.Printf("| %s | %.0f | %s | %.2f | %.2f - %.2f | %s |\n", w.name,
			quartile(w.rates, 2)/scale, late, quartile(r, 2), quartile(r, 1), quartile(r,
				3), wanted)
	}
}

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return r
}

func quartile(v []float64, n int) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[(len(s)-1)*n/4]
}
