package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/peers/internal/only"
)

func main() {
	err := error(nil)
	if len(os.Args) > 1 && os.Args[1] == "node" {
		err = node(os.Args[2:])
	} else {
		err = bench(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

var kinds = []string{weir, filtered, fork, upstream}

// table is one work on one kind of wire.
type table struct {
	key, title, unit string
	scale            float64
	uso              bool
	work             work
}

var tables = []table{
	{"tcp1", "One TCP stream", "Gbit/s", 1e9, true, work{}},
	{"tcp8", "Eight TCP streams, both directions", "Gbit/s", 1e9, true,
		work{args: []string{"-P", "8", "--bidir"}}},
	{"nouso", "One TCP stream, no UDP segmentation offload on the wire", "Gbit/s", 1e9, false,
		work{}},
	{"udp200", "Flood of UDP datagrams of 200 bytes", "kpps", 1e3, true,
		work{args: []string{"-u", "-b", "0", "-l", "200"}}},
	{"ping", "Round trips under the load of one TCP stream", "Gbit/s", 1e9, true, work{ping: true}},
}

func bench(args []string) error {
	fs := flag.NewFlagSet("overlay", flag.ContinueOnError)
	rounds := fs.Int("rounds", 7, "interleaved rounds")
	seconds := fs.Int("seconds", 2, "length of one run")
	chosen := fs.String("only", "",
		"tables to run, separated by commas: tcp1, tcp8, nouso, udp200, ping")
	with := fs.String("with", strings.Join(kinds, ","),
		"kinds of nodes to run, separated by commas")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var names []string
	for _, t := range tables {
		names = append(names, t.key)
	}
	wanted, err := only.Parts(*chosen, names...)
	if err != nil {
		return err
	}
	lab, err := nstest.Open()
	if err != nil {
		return err
	}
	defer lab.Close()
	worst := 1e9
	for _, uso := range []bool{true, false} {
		var tunnels []*tunnel
		for _, t := range tables {
			if t.uso != uso || !wanted(t.key) {
				continue
			}
			if tunnels == nil {
				for k := range strings.SplitSeq(*with, ",") {
					tn, err := openTunnel(lab, k, uso)
					if err != nil {
						return err
					}
					tunnels = append(tunnels, tn)
				}
			}
			r, err := t.measure(tunnels, *rounds, *seconds)
			if err != nil {
				return err
			}
			worst = min(worst, t.print(r))
		}
	}
	fmt.Printf("\nEach ratio is divided by its target; 1 or more means that every target is "+
		"met.\n\nworst ratio: %.2f\n", worst)
	return nil
}

// measure returns the outcomes of every kind, in rounds that go through all kinds.
func (t table) measure(tunnels []*tunnel, rounds, seconds int) (map[string][]outcome, error) {
	r := map[string][]outcome{}
	for round := range rounds {
		for k := range tunnels {
			tn := tunnels[(k+round)%len(tunnels)]
			o, err := tn.run(t.work, seconds)
			if err != nil {
				return nil, err
			}
			r[tn.kind] = append(r[tn.kind], o)
		}
	}
	return r, nil
}
