package main

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/agent/api"
)

// ipfwList is list and show.
func (c *call) ipfwList(l *ipfwLine) error {
	if l.test {
		fmt.Fprintln(c.stderr, "Testing only, list disabled")
		return nil
	}
	var failed error
	var asked []numbers // each argument is listed by itself, in the order in which they are given
	var whole numbers   // what the node is asked for: columns are as wide as that needs
	for _, w := range l.words[1:] {
		one, err := c.ruleNumbers([]string{w})
		if err != nil {
			fmt.Fprintf(c.stderr, "ipfw: invalid rule number: %s\n", c.show(w))
			failed = statusError(exUsage)
			continue
		}
		asked = append(asked, one)
		if whole == nil {
			whole = numbers{one[0]}
		}
		whole[0] = [2]uint16{min(whole[0][0], one[0][0]), max(whole[0][1], one[0][1])}
	}
	if len(l.words) == 1 {
		asked = []numbers{nil}
	}
	rules, states, err := c.ofNode(&l.listFlags, whole)
	if err != nil {
		return err
	}
	list := newListing(l.listFlags, rules, states)
	for _, ranges := range asked {
		if n := list.rules(c.out, ranges, rules); n == 0 && len(ranges) > 0 && !l.dynamicOnly {
			fmt.Fprintf(c.stderr, "ipfw: rule %s does not exist\n", ranges)
			if failed == nil {
				failed = statusError(exUnavailable)
			}
		}
	}
	list.heading(c.out, states, whole != nil)
	for _, ranges := range asked {
		list.states(c.out, states, ranges)
	}
	return failed
}

// ipfwSets is set show.
func (c *call) ipfwSets(l *ipfwLine) error {
	if l.test {
		return nil
	}
	var s api.Sets
	if err := c.get("/v1/sets", &s); err != nil {
		return err
	}
	line, word := "", "disable"
	for _, set := range s.Disabled {
		line += fmt.Sprintf("%s %d", word, set)
		word = ""
	}
	if word = "enable"; line != "" {
		word = " enable"
	}
	for set := range 31 {
		if !slices.Contains(s.Disabled, set) {
			line += fmt.Sprintf("%s %d", word, set)
			word = ""
		}
	}
	fmt.Fprintln(c.out, line)
	return nil
}

// isShow reports whether a word shows pipes or nat.
func isShow(word string) bool { return word == "show" || word == "list" }

// ipfwPipes is pipe show, of all or of one: ipfw's first two lines of each. There is no queue, so
// nothing is in it.
func (c *call) ipfwPipes(l *ipfwLine) error {
	var only string
	for _, w := range l.words[1:] {
		if !isShow(w) {
			only = w
		}
	}
	if l.test {
		return nil
	}
	var all api.Pipes
	if err := c.get("/v1/pipes", &all); err != nil {
		return err
	}
	for _, x := range all.Pipes {
		if only == "" || only == fmt.Sprint(x.Number) {
			fmt.Fprintf(c.out, "%05d: %s    0 ms burst %d\n  %s\n", x.Number,
				pipeBandwidth(x.Bandwidth), x.Burst, c.show(x.Config))
		}
	}
	return nil
}

// ipfwNATs is nat show, of all or of one. There are no counts of translations.
func (c *call) ipfwNATs(l *ipfwLine) error {
	var only string
	for _, w := range l.words[1:] {
		if !isShow(w) && w != "config" && w != "log" {
			only = w
		}
	}
	if l.test {
		return nil
	}
	var all api.NATs
	if err := c.get("/v1/nat", &all); err != nil {
		return err
	}
	for _, x := range all.NATs {
		if only == "" || only == fmt.Sprint(x.Number) {
			fmt.Fprintf(c.out, "ipfw nat %d config %s\n", x.Number, c.show(x.Config))
		}
	}
	return nil
}

// pipeBandwidth is how ipfw prints a bandwidth.
func pipeBandwidth(n uint64) string {
	switch {
	case n == 0:
		return "unlimited         "
	case n < 1000:
		return fmt.Sprintf("%7.3f bit/s ", float64(n))
	case n < 1e6:
		return fmt.Sprintf("%7.3f Kbit/s", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%7.3f Mbit/s", float64(n)/1e6)
	}
	return fmt.Sprintf("%7.3f Gbit/s", float64(n)/1e9)
}

// ipfwTableCommands are what can be done with a table.
var ipfwTableCommands = []string{"add", "delete", "create", "destroy", "flush", "modify", "swap",
	"info", "detail", "list", "lookup", "atomic", "lock", "unlock"}

// ipfwTable prints tables, and has the node change them. A missing table may be emptied and
// removed, and with -q a missing member.
func (c *call) ipfwTable(l *ipfwLine) error {
	if len(l.words) < 3 {
		return usageError{what: "table needs name and command", hint: "ipfw -h"}
	}
	name, command := l.words[1], l.words[2]
	if !slices.Contains(ipfwTableCommands, command) {
		var meant []string
		for _, v := range ipfwTableCommands {
			if isAbbreviated(command, v) {
				meant = append(meant, v)
			}
		}
		if len(meant) != 1 {
			return usageError{what: "ambiguous or unknown table command " + command,
				hint: "ipfw -h"}
		}
		command, l.words[2] = meant[0], meant[0]
	}
	switch command {
	case "list", "info", "detail":
		if l.test {
			return nil
		}
		return c.listTables(name, command, tableFormat{addresses: l.addresses})
	case "lookup":
		if len(l.words) != 4 {
			return usageError{what: "address required",
				hint: "ipfw table NAME lookup ADDRESS"}
		}
		return c.lookup(name, l.words[3], false)
	}
	lenient := command == "flush" || command == "destroy" || l.quiet
	return c.ipfwDo(l, l.line(), lenient)
}
