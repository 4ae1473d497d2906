package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/internal/tty"
)

// addresses collects the flag --me.
type addresses []netip.Prefix

func (a *addresses) String() string { return join(*a) }
func (a *addresses) Type() string   { return "addresses" }

// Set takes an address, or a prefix for an address with its network.
func (a *addresses) Set(s string) error {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		var addr netip.Addr
		if addr, err = netip.ParseAddr(s); err != nil {
			return fmt.Errorf("%q is not an address", s)
		}
		p = netip.PrefixFrom(addr, addr.BitLen())
	}
	*a = append(*a, p)
	return nil
}

func fwWhyCommand(c *call) action {
	asJSON := c.json("")
	file := c.StringP("rules", "f", "", "use the rule file `FILE`, offline, instead of the node")
	var me addresses
	c.Var(&me, "me", "with -f: an `ADDRESS` of the host; may be given several times")
	c.takes(1, -1)
	return func() error {
		about := strings.Join(c.Args(), " ")
		var a api.Explanation
		if *file == "" {
			if err := c.post("/v1/why", api.Why{Packet: about}, &a); err != nil {
				return err
			}
		} else {
			name, text, err := c.readFile(*file)
			if err != nil {
				return c.failed(err)
			}
			if a, err = offline.Why(name, text, me, about); err != nil {
				return c.failed(err)
			}
		}
		if *asJSON {
			return printJSON(c.out, a)
		}
		printWhy(c, a)
		return nil
	}
}

func printWhy(c *call, a api.Explanation) {
	t := tty.NewTable(c.out, ">rule", "outcome", "text")
	for _, try := range a.Tries {
		t.Row(try.Rule, try.Outcome, try.Text)
	}
	t.Flush()
	verdict := "dropped"
	if a.Passed {
		verdict = "passed"
	}
	by := fmt.Sprintf("by rule %d: %s", a.Rule, a.Text)
	if a.Rule == 0 {
		by = "before the rules"
	}
	if a.Reason != "rule" {
		by += " (" + a.Reason + ")"
	}
	fmt.Fprintf(c.out, "%s is %s %s\n", c.show(a.Packet), verdict, c.show(by))
	if a.Found != "" {
		fmt.Fprintf(c.out, "It belongs to the state %s.\n", c.show(a.Found))
	}
	if a.State {
		fmt.Fprintln(c.out, "A state would be made.")
	}
	if a.Answer != "" {
		fmt.Fprintf(c.out, "The sender gets: %s.\n", a.Answer)
	}
}
