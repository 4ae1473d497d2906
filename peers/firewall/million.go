package main

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
)

// million measures a table of a million states: what sweeping it costs, and what packets cost while
// all of it expires.
func (b *bench) million(int) error {
	const states, life = 1 << 20, 14 * time.Second
	progress("a million states")
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = states, states, 0
	o.Timeouts.UDP = life
	if err := b.open(o); err != nil {
		return err
	}
	if err := b.load(weirUDP); err != nil {
		return err
	}
	sink, err := b.server.ListenPacket("udp4", serverAddr+":9")
	if err != nil {
		return err
	}
	defer sink.Close()
	sink.(*net.UDPConn).SetReadBuffer(1)
	weir := b.weir()
	if err := weir.on(); err != nil {
		return err
	}
	defer weir.off()
	return b.client.Do(func() error {
		if err := pin(1); err != nil {
			return err
		}
		s, err := newSender(b.from, b.to)
		if err != nil {
			return err
		}
		defer s.close()
		time.Sleep(twoPasses) // in which it notes what it can leave alone
		empty, err := b.sweepShare(2 * time.Second)
		if err != nil {
			return err
		}
		var made kernel.Stats
		for began := time.Now(); made.States < states*9/10 && time.Since(began) < life; {
			if _, err := s.send(states, 100*time.Millisecond); err != nil {
				return err
			}
			if made, err = b.engine.Stats(); err != nil {
				return err
			}
		}
		making, err := b.sweepShare(twoPasses)
		if err != nil {
			return err
		}
		full, err := b.sweepShare(2 * time.Second)
		if err != nil {
			return err
		}
		// One flow of its own continues while the others expire.
		var still, expiring []float64
		for began := time.Now(); time.Since(began) < 2*life; {
			before, err := b.engine.Stats()
			if err != nil {
				return err
			}
			cost, err := s.send(1, 50*time.Millisecond)
			if err != nil {
				return err
			}
			after, err := b.engine.Stats()
			if err != nil {
				return err
			}
			switch gone := after.Sweep.Removed - before.Sweep.Removed; {
			case gone > 1000:
				expiring = append(expiring, cost)
			case after.States > states/2:
				still = append(still, cost)
			}
		}
		end, err := b.engine.Stats()
		if err != nil {
			return err
		}
		if len(still) == 0 || len(expiring) == 0 {
			return fmt.Errorf("the states did not expire while it was measured: %d of %d are left",
				end.States, made.States)
		}
		flat := slices.Min(expiring) / slices.Min(still)
		fmt.Printf("### A table of %d states\n\n| what | | target |\n| --- | --- | --- |\n"+
			"| states made | %d | |\n| share of a CPU that the sweep takes, nothing to sweep | "+
			"%.2f %% | |\n"+
			"| the same, table full, nothing expires, while it notes that | %.2f %% | |\n"+
			"| from then on | %.2f %% | %s %% |\n"+
			"| longest tick, all of it expiring | %.0f us | |\n"+
			"| ns per packet of a flow, table full | %.0f | |\n"+
			"| the same while %d states expire | %.0f (%.2f times) | %s |\n\n",
			states, made.States, empty*100, making*100, full*100, atMost(full*100, 1),
			float64(end.Sweep.Longest)/1e3,
			slices.Min(still), end.Sweep.Removed, slices.Min(expiring), flat, atMost(flat, 1.1))
		return nil
	})
}

// twoPasses is how long the sweep's clock hand takes for two rounds of a table of a million. The
// first pass sees that a set stays as it is, and the second notes it.
const twoPasses = 4 * time.Second

// sweepShare returns the share of a CPU that the sweep takes for a while.
func (b *bench) sweepShare(d time.Duration) (float64, error) {
	before, err := b.engine.Stats()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	time.Sleep(d)
	after, err := b.engine.Stats()
	return float64(after.Sweep.Work-before.Sweep.Work) / float64(time.Since(began)), err
}
