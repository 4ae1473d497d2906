package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/peers/internal/only"
)

// role is the variable with the role of this program when it runs again inside a namespace.
const role = "WEIR_DIAL_ROLE"

func main() {
	rounds := flag.Int("rounds", 600, "interleaved rounds of every row of the good path")
	chosen := flag.String("only", "", "parts to run, separated by commas: good, faults, proxy")
	weir := flag.String("weir", "../bin/weir", "the binary")
	flag.Parse()
	if err := run(*rounds, *chosen, *weir); err != nil {
		fmt.Fprintln(os.Stderr, "dial:", err)
		os.Exit(1)
	}
}

func run(rounds int, chosen, weir string) error {
	wanted, err := only.Parts(chosen, "good", "faults", "proxy")
	if err != nil {
		return err
	}
	switch what := os.Getenv(role); what {
	case "serve":
		return serve()
	case "plain":
		return servePlain()
	case "good":
		return good(rounds)
	case "faults0", "faults1", "faults2":
		return faults(eyeballstest.Family(what[6] - '0'))
	case "relay":
		return relays(rounds, weir)
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root, for namespaces and a TUN device")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		return err
	}
	worst := 1e9
	part := func(name, title string, roles ...string) error {
		if !wanted(name) {
			return nil
		}
		fmt.Print(title)
		for _, r := range roles {
			var out strings.Builder
			if err := eyeballstest.Inside(role+"="+r, &out, "-rounds", strconv.Itoa(rounds),
				"-weir", weir); err != nil {
				return fmt.Errorf("%s: %w\n%s", r, err, out.String())
			}
			for line := range strings.Lines(out.String()) {
				if ratio, ok := strings.CutPrefix(line, "ratio "); ok {
					v, err := strconv.ParseFloat(strings.TrimSpace(ratio), 64)
					if err != nil {
						return err
					}
					worst = min(worst, v)
					continue
				}
				fmt.Print(line)
			}
		}
		return nil
	}
	if err := part("good", "### Everything works\n\n"+
		"| dial and exchange | net.Dialer us (allocs) | weir us (allocs) | ratio | target |\n"+
		"| --- | --- | --- | --- | --- |\n", "good"); err != nil {
		return err
	}
	if err := part("faults", "\n### Something does not\n\n"+
		"| scenario | net.Dialer ms | curl ms | weir ms | prescribed ms |\n"+
		"| --- | --- | --- | --- | --- |\n", "faults0", "faults1", "faults2"); err != nil {
		return err
	}
	if err := part("proxy",
		"\n### The proxy\n\n| what | direct | through weir proxy | value | target |\n"+
			"| --- | --- | --- | --- | --- |\n", "relay"); err != nil {
		return err
	}
	fmt.Printf("\nEach row is divided by its target; 1 or more means that every target is met.\n\n"+
		"worst ratio: %.2f\n", worst)
	return nil
}

// report reports a row divided by its target to the parent process: 1 or more means that the target
// is met.
func report(ratio float64) { fmt.Printf("ratio %v\n", ratio) }

// inNamespace prepares the files of /etc in the mount namespace of this process.
func inNamespace(hosts string) error {
	return eyeballstest.Etc(map[string]string{
		"resolv.conf": "nameserver 127.0.0.1\n", "hosts": hosts,
		"nsswitch.conf": "hosts: files dns\n", "gai.conf": "",
	})
}
