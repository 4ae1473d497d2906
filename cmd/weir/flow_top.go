package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/observe"
)

func flowTopCommand(c *call) action {
	asJSON := c.json(", once")
	rows := c.IntP("rows", "n", 0, "print `ROWS` of each table (default: what fits, or 20)")
	sort := c.String("sort", "rate",
		"order of the top talkers: `KEY` is rate, bytes, packets or states")
	once := c.Bool("once", false, "print one table and end")
	every := c.Duration("every", 2*time.Second, "`TIME` between two updates")
	names := c.Bool("names", false,
		"look up the DNS names of addresses, and show them as soon as they are found")
	c.completeFlag("sort", fixed("rate", "bytes", "packets", "states"))
	c.takes(0, 1)
	return func() error {
		v := topView{sort: *sort, word: c.Arg(0)}
		if *names {
			v.names = observe.NewNameCache(c.ctx, eyeballs.DefaultResolver().NameOf)
		}
		switch {
		case sortKeys[*sort] == nil:
			return c.wrong("--sort %q is not one of rate, bytes, packets, states", *sort)
		case *rows < 0 || *rows > 1000:
			return c.wrong("-n %d is not between 1 and 1000", *rows)
		case *every < 100*time.Millisecond:
			return c.wrong("--every %v is shorter than 100ms", *every)
		}
		if *asJSON {
			a, err := c.top()
			if err != nil {
				return err
			}
			return printJSON(c.out, a)
		}
		screen, ok := c.out.(*os.File)
		if !ok || !tty.IsTerminal(screen) || *once {
			return c.topPlain(v, *rows, *every)
		}
		return c.topLive(v, screen, *rows, *every)
	}
}

func (c *call) top() (a api.Top, err error) {
	err = c.get(fmt.Sprintf("/v1/top?n=%d", maxTopRows), &a)
	return a, err
}

// maxTopRows is how many rows are requested from the node, so that there are enough to sort by
// another key.
const maxTopRows = 200

// topPlain prints one table. Rates need two answers.
func (c *call) topPlain(v topView, rows int, every time.Duration) error {
	if rows == 0 {
		rows = 20
	}
	if _, err := c.top(); err != nil {
		return err
	}
	select {
	case <-c.ctx.Done():
		return nil
	case <-time.After(min(every, time.Second)):
	}
	a, err := c.top()
	if err != nil {
		return err
	}
	v.show(c.out, &a, tty.Width(c.out), rows)
	return nil
}

// topLive redraws the screen until a key or a signal ends it. It always restores the terminal, also
// when the node stops.
func (c *call) topLive(v topView, screen *os.File, rows int, every time.Duration) error {
	keys, restore := c.keys()
	defer restore()
	io.WriteString(screen, "\x1b[?1049h\x1b[?25l")
	defer io.WriteString(screen, "\x1b[?25h\x1b[?1049l")
	tick := time.NewTimer(0)
	defer tick.Stop()
	var a api.Top
	for {
		select {
		case <-c.ctx.Done():
			return nil
		case k, open := <-keys:
			if !open {
				keys = nil
				continue
			}
			if v.key(k) {
				return nil
			}
		case <-tick.C:
			tick.Reset(every)
			if v.paused {
				continue
			}
			var err error
			if a, err = c.top(); err != nil {
				return err
			}
		}
		io.WriteString(screen, v.frame(&a, screen, rows))
	}
}

// keys reads single keys from the terminal, if stdin is one. restore restores its mode.
func (c *call) keys() (keys chan byte, restore func()) {
	in, ok := c.in.(*os.File)
	if !ok || !tty.IsTerminal(in) {
		return nil, func() {}
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, func() {}
	}
	keys = make(chan byte)
	go func() {
		defer close(keys)
		var b [1]byte
		for {
			if n, err := in.Read(b[:]); err != nil || n == 0 {
				return
			}
			select {
			case keys <- b[0]:
			case <-c.ctx.Done():
				return
			}
		}
	}()
	return keys, func() { term.Restore(int(in.Fd()), before) }
}
