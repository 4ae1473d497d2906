package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/weirnet/weir/peers/internal/only"
)

func main() {
	rounds := flag.Int("rounds", 60, "interleaved rounds of every row")
	slice := flag.Duration("slice", 2*time.Millisecond, "length of one contender's part of a round")
	chosen := flag.String("only", "",
		"tables to run, separated by commas: cases, mixed, rules, states, workers, new")
	profile := flag.String("cpuprofile", "", "write a CPU profile")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fmt.Fprintln(os.Stderr, "filter:", err)
			os.Exit(1)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			fmt.Fprintln(os.Stderr, "filter:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(*chosen, *rounds, *slice); err != nil {
		fmt.Fprintln(os.Stderr, "filter:", err)
		os.Exit(1)
	}
}

// worst is the smallest ratio seen, each divided by its target.
var worst = 1e9

func checkTarget(ratio, must float64) { worst = min(worst, ratio/must) }

func run(chosen string, rounds int, slice time.Duration) error {
	wanted, err := only.Parts(chosen, "cases", "mixed", "rules", "states", "workers", "new")
	if err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		run  func(int, time.Duration) error
	}{{"cases", tenCases}, {"mixed", mixedCases}, {"rules", manyRules}, {"states", manyStates},
		{"workers", twoWorkers}, {"new", newFlowsTable}} {
		if !wanted(t.name) {
			continue
		}
		if err := t.run(rounds, slice); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Println()
	}
	if worst == 1e9 {
		return nil // a table without targets
	}
	fmt.Printf("Each ratio is divided by its target; 1 or more means that every target is met.\n\n"+
		"worst ratio: %.2f\n", worst)
	return nil
}
