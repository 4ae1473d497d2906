package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// How much legitimate work of each kind there is: workers and operations a second.
const (
	workers  = 4
	workRate = 25
	keptEach = 10
	// of each address that falls silent
	silentWorkers = 40
)

// row is a line of the table of floods.
type row struct {
	scenario, contender string
	rate                int
	before, during      float64 // operations that went well, a second
	failed, slow        int64   // new connections and questions during the attack
	lost, kept          int     // of the connections that stay
	reached             float64
	cost                time.Duration
	done                int64  // what was tried during the attack
	why                 string // what Weir reports as refused
}

// runFlood runs a scenario against a contender in a testbed of its own.
func (c config) runFlood(s *scenario, by contender, rate int) (r row, err error) {
	r = row{scenario: s.name, contender: by.name, rate: rate}
	w, err := newTestbed()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.serve(); err != nil {
		return r, err
	}
	var jobs []work
	for _, k := range s.work {
		if by.pods || !k.pods {
			jobs = append(jobs, k)
		}
	}
	stop := make(chan struct{})
	defer close(stop)
	var kept []*keptConn
	raise := func() error { return by.raise(w, s) }
	hold := func() (err error) { kept, err = keep(w, jobs, keptEach, stop); return err }
	steps := []func() error{raise, hold}
	if s.adopted {
		steps = []func() error{hold, raise}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return r, err
		}
	}
	lasts := c.floodFor
	if s.brief {
		lasts /= 3
	}
	if by.name != "weir" {
		lasts = c.beside
	}
	r.before = sum(together(w, jobs, time.Now().Add(c.calm), nil), nil)
	refusedBefore := w.refused()
	end := time.Now().Add(lasts)
	flooded := make(chan error, 1)
	go func() { flooded <- r.strike(w, s, kept, rate, end) }()
	time.Sleep(lasts / 8) // tables fill
	r.during = sum(together(w, jobs, end, nil), &r)
	if err := <-flooded; err != nil {
		return r, err
	}
	r.why = difference(refusedBefore, w.refused())
	time.Sleep(200 * time.Millisecond)
	for _, k := range kept { // each must still carry a byte
		k.conn.SetDeadline(time.Now().Add(keptTimeout))
	}
	r.lost, r.kept = lost(kept), len(kept)
	return r, nil
}

// strike sends the attack.
func (r *row) strike(w *testbed, s *scenario, kept []*keptConn, rate int, end time.Time) error {
	if s.connect != nil {
		began := time.Now()
		n, err := s.connect(w, rate, end)
		r.reached = float64(n) / time.Since(began).Seconds()
		return err
	}
	sent, err := flood(w.outside, "eth0", w.hostMAC, rate, s.attack(w, kept), end)
	if err != nil {
		return err
	}
	r.reached, r.cost = float64(sent.packets)/sent.took.Seconds(), sent.cost
	return nil
}

// sum adds tallies up: operations a second, and what went wrong into r.
func sum(all []*tally, r *row) (rate float64) {
	for _, t := range all {
		rate += t.rate()
		if r != nil {
			r.failed += t.failed.Load()
			r.slow += t.slow.Load()
			r.done += t.ok.Load() + t.failed.Load()
		}
	}
	return rate
}

// fallSilent opens connections from three real addresses at a rate, and says nothing on them: to
// the host and to the published port in turn.
func fallSilent(w *testbed, rate int, end time.Time) (int, error) {
	most, err := mayConnect()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var turn atomic.Int64
	var mu sync.Mutex
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	prefixes, err := nstest.Prefixes("10.66.0.11/24 10.66.0.12/24 10.66.0.13/24")
	if err != nil {
		return 0, err
	}
	link, err := w.outside.Netlink().LinkByName("eth0")
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	for _, p := range prefixes {
		if err := w.outside.Netlink().AddAddr(link.Index, p); err != nil {
			return 0, err
		}
		for range silentWorkers {
			wg.Go(func() {
				w.outside.Do(func() error {
					d := net.Dialer{Timeout: time.Second,
						LocalAddr: &net.TCPAddr{IP: p.Addr().AsSlice()}}
					for time.Now().Before(end) {
						n := int(turn.Add(1))
						time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second /
							time.Duration(rate))))
						if n > most {
							continue
						}
						c, err := d.Dial("tcp4", net.JoinHostPort(hostAddr,
							fmt.Sprint([]int{echoPort, publishedPort}[n%2])))
						if err != nil {
							time.Sleep(10 * time.Millisecond)
							continue
						}
						mu.Lock()
						conns = append(conns, c)
						mu.Unlock()
					}
					return nil
				})
			})
		}
	}
	wg.Wait()
	return len(conns), nil
}
