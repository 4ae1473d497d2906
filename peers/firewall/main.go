package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/weirnet/weir/peers/internal/only"
)

func main() {
	cycles := flag.Int("cycles", 25, "interleaved cycles of every row")
	chosen := flag.String("only", "",
		"only the parts with these names, separated by commas: udp, rules, tcp, http, minute, "+
			"load, flood, million, cpus")
	flag.Parse()
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	if err := run(*cycles, *chosen); err != nil {
		fmt.Fprintln(os.Stderr, "firewall:", err)
		os.Exit(1)
	}
}

// worst is the smallest of the ratios of weir to its target, where 1 and more means that the target
// is held.
var worst = 1e9

// atMost notes a number that must not be above a target.
func atMost(got, target float64) string {
	worst = min(worst, target/max(got, 1e-9))
	return fmt.Sprintf("<= %.3g", target)
}

// atLeast notes a number that must not be below a target.
func atLeast(got, target float64) string {
	worst = min(worst, got/target)
	return fmt.Sprintf(">= %.3g", target)
}

func run(cycles int, chosen string) error {
	wanted, err := only.Parts(chosen, "udp", "rules", "cpus", "tcp", "http", "minute", "flood",
		"million", "load")
	if err != nil {
		return err
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	defer b.close()
	for _, part := range []struct {
		name string
		run  func(int) error
	}{
		{"udp", b.udpFlows}, {"rules", b.udpRules}, {"cpus", b.cpus}, {"tcp", b.tcpStream},
		{"http", b.httpRows}, {"minute", b.sustained},
		{"flood", b.flood}, {"million", b.million}, {"load", b.loads},
	} {
		if !wanted(part.name) {
			continue
		}
		if err := part.run(cycles); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	fmt.Printf("\nEach row is divided by its target; 1 or more means that every target is met.\n\n"+
		"worst ratio: %.2f\n", worst)
	return nil
}
