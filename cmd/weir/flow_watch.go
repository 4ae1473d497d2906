package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/observe"
)

func runFlowWatch(c *call) error {
	asJSON := c.Bool("j", false, "print JSON lines")
	from := c.String("from", "", "read events from `FILE`, a saved stream, instead of the node; - is stdin")
	since := c.String("since", "", "begin with the past: a duration (5m) or a `TIME` (RFC 3339)")
	past := c.Bool("past", false, "with --since: end with the past instead of going on")
	if err := c.onNode(0, -1); err != nil {
		return err
	}
	text := strings.Join(c.Args(), " ")
	filter, err := observe.ParseFilter(text, offline.SystemNames())
	if err != nil {
		return c.failed(err)
	}
	out := bufio.NewWriter(c.out)
	defer out.Flush()
	show := func(e *observe.Event) error {
		if *asJSON {
			out.Write(e.AppendJSON(nil))
		} else {
			fmt.Fprintln(out, e.Text())
		}
		return out.Flush()
	}
	switch {
	case *from != "" && *since != "":
		return c.wrong("--since asks the node; --from reads a file")
	case *past && *since == "":
		return c.wrong("--past goes with --since")
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
		if *asJSON {
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
		return nil // the user has seen enough
	}
	return c.failed(err)
}

// watchFile replays a saved stream. Lines that are no events are told on stderr, and are an error in the end.
func (c *call) watchFile(name string, filter *observe.Filter, show func(*observe.Event) error) error {
	if t := filter.Tables(); t != nil {
		return fmt.Errorf("a saved stream does not tell who is in table(%s)", t[0])
	}
	var in io.Reader = c.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	bad := 0
	for e, err := range observe.ReadStream(in) {
		if err != nil {
			bad++
			fmt.Fprintf(c.talk, "weir: %s: %s\n", c.show(name), c.show(err.Error()))
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
		return fmt.Errorf("%s: lines that are no events: %d", name, bad)
	}
	return nil
}
