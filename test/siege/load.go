package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// load is legitimate work at a rate that wears tables out.
type load struct {
	name string
	work work
	rate int
	back time.Duration // how long the table may take to be at its level again
}

// loadRow is a line of the table of loads.
type loadRow struct {
	contender     string
	rate          float64
	failed, slow  int64
	before, after int // states; after: when they were back, or after half a minute
	back          time.Duration
	why           string
}

// How long the table may take. A connection that was closed is gone within seconds. A question that
// was answered may be the first of many. By default ([timeouts] udp_reply) its state stays for 30 s
// after the last packet, then the sweep comes by within a few seconds.
const (
	tcpBack = 30 * time.Second
	udpBack = 30*time.Second + 10*time.Second
)

// level is how many more states count as the level before.
const level = 10

func (c config) runLoad(l load, by contender) (r loadRow, err error) {
	r = loadRow{contender: by.name}
	lasts := c.loadFor
	if by.name != "weir" {
		lasts = c.beside
	}
	w, err := newTestbed()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.serve(); err != nil {
		return r, err
	}
	if err := by.raise(w, &scenario{}); err != nil {
		return r, err
	}
	if r.before, err = w.states(); err != nil {
		return r, err
	}
	refused := w.refused()
	t := l.work.run(w, 32, l.rate, time.Now().Add(lasts), nil)
	r.rate, r.failed, r.slow = t.rate(), t.failed.Load(), t.slow.Load()
	r.why = difference(refused, w.refused())
	ended := time.Now()
	for {
		if r.after, err = w.states(); err != nil {
			return r, err
		}
		r.back = time.Since(ended)
		if r.after <= r.before+level || r.back > l.back || by.name != "weir" {
			return r, nil
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// states counts what the table holds, Weir's or that of conntrack.
func (w *testbed) states() (n int, err error) {
	if w.agentNode == nil {
		err = w.host.Do(func() error {
			b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
			if err == nil {
				n, err = strconv.Atoi(strings.TrimSpace(string(b)))
			}
			return err
		})
		return n, err
	}
	s, err := w.agentNode.status()
	return s.Table.States, err
}

// refused returns why Weir has refused packets so far.
func (w *testbed) refused() map[string]uint64 {
	if w.agentNode == nil {
		return nil
	}
	s, err := w.agentNode.status()
	if err != nil {
		return map[string]uint64{err.Error(): 1}
	}
	return s.Reasons
}

// want are the reasons that mean a lack of space.
var want = []string{"limit", "states-full", "half-open-full", "half-open-source", "nat-ports"}

// difference lists how often each lack of space has come since.
func difference(before, now map[string]uint64) (text string) {
	for _, reason := range want {
		if n := now[reason] - before[reason]; n > 0 {
			text += fmt.Sprintf(" %s %d", reason, n)
		}
	}
	return text
}
