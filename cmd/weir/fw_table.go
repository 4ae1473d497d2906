package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/rule"
)

// fwTableCommand prints tables itself (list, info, lookup) and passes everything else to the node.
func fwTableCommand(c *call) action {
	asJSON := c.json(" (list, info, lookup)")
	quiet := c.BoolP("quiet", "q", false, "print nothing on success")
	c.takes(2, -1)
	c.complete(c.liveTables)
	return func() error {
		name, what := c.Arg(0), c.Arg(1)
		switch what {
		case "list", "show", "info", "detail":
			if c.NArg() > 2 {
				return c.wrong("unexpected %q", c.Arg(2))
			}
			return c.listTables(name, what, tableFormat{json: *asJSON})
		case "lookup":
			if c.NArg() != 3 {
				return c.wrong("lookup takes one address")
			}
			return c.lookup(name, c.Arg(2), *asJSON)
		}
		if member, err := c.isMember(); err != nil || member {
			if err != nil {
				return c.failed(err)
			}
			return c.changeShared("table "+strings.Join(c.Args(), " "), *quiet)
		}
		return c.do("table "+strings.Join(c.Args(), " "), *quiet)
	}
}

// someTables reads one table, or all, from the node. A node of another version may answer with more
// than the query asks for.
func (c *call) someTables(name string, query url.Values) (api.Tables, error) {
	if name != "all" {
		query.Set("name", name)
	}
	var all api.Tables
	if err := c.get("/v1/tables?"+query.Encode(), &all); err != nil || name == "all" {
		return all, err
	}
	for _, t := range all.Tables {
		if t.Name == name {
			all.Tables = []api.Table{t}
			return all, nil
		}
	}
	return all, c.failed(advice{fmt.Errorf("there is no table %s", name),
		"weir fw table all list"})
}

// tableFormat is how tables are listed.
type tableFormat struct {
	json      bool
	addresses bool // values are IPv4 addresses
}

func (c *call) listTables(name, what string, f tableFormat) error {
	query := url.Values{}
	if (what == "info" || what == "detail") && !f.json {
		query.Set("members", "0")
	}
	some, err := c.someTables(name, query)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(c.out, some)
	}
	for _, t := range some.Tables {
		if what == "info" || what == "detail" || name == "all" {
			fmt.Fprintf(c.out, "--- table(%s), set(0) ---\n", c.show(t.Name))
		}
		if what == "info" || what == "detail" {
			fmt.Fprintf(c.out, " type: addr\n items: %d\n", t.Items)
			if t.File != "" {
				fmt.Fprintf(c.out, " file: %s\n", c.show(t.File))
			}
			continue
		}
		for _, e := range t.Entries {
			value := fmt.Sprint(e.Value)
			if v := e.Value; f.addresses {
				value = netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8),
					byte(v)}).String()
			}
			if e.LeftSeconds != nil {
				left := time.Duration(*e.LeftSeconds * float64(time.Second))
				value += " timeout " + rule.FormatTimeout(left.Round(time.Second))
			}
			fmt.Fprintf(c.out, "%s %s\n", e.Prefix, value)
		}
	}
	return nil
}

// lookup prints the longest prefix of a table that covers an address. The JSON is that of a table
// with this member.
func (c *call) lookup(name, address string, asJSON bool) error {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return usageError{what: fmt.Sprintf("%s: lookup %q: not an address", c.command.name,
			address), hint: "write one without a prefix length, such as 192.0.2.1"}
	}
	some, err := c.someTables(name, url.Values{"address": {addr.String()}})
	if err != nil {
		return err
	}
	var table api.Table
	longest := -1
	for _, t := range some.Tables {
		if e, bits := t.Lookup(addr); bits > longest {
			table, longest = t, bits
			table.Entries = []api.TableEntry{e}
		}
	}
	if longest < 0 {
		return c.failed(fmt.Errorf("%s is not in table %s", addr, name))
	}
	if asJSON {
		some.Tables = []api.Table{table}
		return printJSON(c.out, some)
	}
	fmt.Fprintf(c.out, "%s %d\n", table.Entries[0].Prefix, table.Entries[0].Value)
	return nil
}
