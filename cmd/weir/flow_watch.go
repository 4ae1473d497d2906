package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/observe"
)

func flowWatchCommand(c *call) action {
	asJSON := c.json(" lines")
	from := c.String("from", "",
		"instead of the node, read `FILE`: a saved stream (- is stdin), or with -f a capture")
	rules := c.StringP("rules", "f", "", "evaluate the capture with the rule file `FILE`")
	var me addresses
	c.Var(&me, "me", "an `ADDRESS` of the host that captured; may be given several times")
	since := c.String("since", "", "begin with past events: a duration (5m) or a `TIME` (RFC 3339)")
	names := c.Bool("names", false,
		"look up the DNS names of addresses, and show them as soon as they are found")
	past := c.Bool("past", false, "with --since: end after the past events")
	c.takes(0, -1)
	return func() error {
		text := strings.Join(c.Args(), " ")
		filter, err := observe.ParseFilter(text, rulefile.SystemNames())
		if err != nil {
			return c.failed(err)
		}
		out := bufio.NewWriter(c.out)
		defer out.Flush()
		var dns *observe.NameCache
		if *names {
			dns = observe.NewNameCache(c.ctx, eyeballs.DefaultResolver().NameOf)
		}
		colours := tty.Colours(c.out)
		if !*asJSON && tty.IsTerminal(c.out) {
			fmt.Fprintln(out, observe.TextHeader)
		}
		show := func(e *observe.Event) error {
			if dns != nil {
				dns.SetNames(e)
			}
			if *asJSON {
				out.Write(e.AppendJSON(nil))
			} else {
				fmt.Fprintln(out, watchLine(e, colours))
			}
			return out.Flush()
		}
		switch {
		case *from != "" && *since != "":
			return c.wrong("--since and --from cannot be combined: --from reads from a file")
		case *past && *since == "":
			return c.wrong("--past needs --since")
		case *rules != "" && *from == "":
			return c.wrong("-f needs --from CAPTURE")
		case *rules != "":
			return c.failed(c.watchCapture(*rules, *from, me, filter, show))
		case *from != "":
			return c.failed(c.watchFile(*from, filter, show))
		}
		q := url.Values{"filter": {text}}
		if *since != "" {
			q.Set("since", *since)
		}
		if *past {
			q.Set("follow", "0")
		}
		err = c.client().Stream(c.ctx, "/v1/events?"+q.Encode(), func(line []byte) error {
			if *asJSON && dns == nil {
				out.Write(line)
				out.WriteByte('\n')
				return out.Flush()
			}
			e, err := observe.ParseEvent(line)
			if err != nil {
				return err
			}
			return show(&e)
		})
		if errors.Is(err, context.Canceled) {
			return nil // interrupted by the user
		}
		return c.failed(err)
	}
}

// watchLine is the line of an event; in colours, what is refused is red.
func watchLine(e *observe.Event, colours bool) string {
	if colours && observe.Refused(&e.Event) {
		return "\x1b[31m" + e.Text() + "\x1b[0m"
	}
	return e.Text()
}

// watchCapture prints the events that a node with a rule file would have made for a capture.
func (c *call) watchCapture(rules, name string, me addresses, filter *observe.Filter,
	show func(*observe.Event) error) error {
	file, text, err := c.readFile(rules)
	if err != nil {
		return err
	}
	from, capture, err := c.open(name)
	if err != nil {
		return err
	}
	defer capture.Close()
	set, err := rulefile.Check(file, text)
	if err != nil {
		return err
	}
	names := &observe.Names{
		Table: func(table string, a netip.Addr) (uint32, bool) {
			return set.Lookup(table, a)
		},
		Me: func(a netip.Addr) bool {
			return slices.ContainsFunc(me, func(p netip.Prefix) bool { return p.Addr() == a })
		},
	}
	var failed error
	r := offline.Replay{Name: file, Text: text, Capture: from, Me: me}
	r.Event = func(e *observe.Event) {
		if filter.Match(e, names) && failed == nil {
			failed = show(e)
		}
	}
	s, err := r.Run(c.ctx, capture, func(*offline.PacketVerdict) error { return failed })
	if err == nil && s.Cut > 0 {
		fmt.Fprintf(c.stderr,
			"weir: packets left out, since the snap length cut their headers: %d\n", s.Cut)
	}
	return err
}

// watchFile reads a saved stream. It reports lines that are not events on stderr, and returns an
// error for them at the end.
func (c *call) watchFile(name string, filter *observe.Filter,
	show func(*observe.Event) error) error {
	if t := filter.Tables(); t != nil {
		return advice{fmt.Errorf("a saved stream has no members of table(%s)", t[0]),
			"name addresses instead of the table, or watch the node without --from"}
	}
	_, in, err := c.open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	bad := 0
	for e, err := range observe.ReadStream(in) {
		if err != nil && c.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			bad++
			fmt.Fprintf(c.stderr, "weir: %s: %s\n", c.show(name), c.show(err.Error()))
			continue
		}
		if filter.Match(&e, &observe.Names{}) {
			if err := show(&e); err != nil {
				return err
			}
		}
		if err := c.ctx.Err(); err != nil {
			return nil
		}
	}
	if bad > 0 {
		return advice{fmt.Errorf("%s: %d lines are not events", name, bad),
			"weir flow watch -j > FILE saves a stream; to read a capture, add -f RULES"}
	}
	return nil
}
