// Observe measures the cost of events. It measures packets with and without a watcher, in
// interleaved rounds, events per second to a reader, with those that it missed, and the agent's
// memory with a million states.
//
//	go run ./observe [-weir ../bin/weir] [-cycles 20]
//
// It needs root, makes its own network namespaces, and runs the real binary in one of them.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weirnet/weir/peers/internal/memory"
)

func main() {
	weir := flag.String("weir", "../bin/weir", "the binary")
	cycles := flag.Int("cycles", 20, "interleaved cycles")
	flag.Parse()
	if err := run(*weir, *cycles); err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(1)
	}
}

// worst is the smallest ratio of a number to its target, where 1 and more means that the target is
// met.
var worst = 1e9

func run(weir string, cycles int) error {
	b, err := newBench(weir)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Println("| what | no watcher | one watcher | ratio | target |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	if err := b.overhead("ns per packet of an established UDP flow", 9, cycles, 1.05); err != nil {
		return err
	}
	if err := b.overhead("ns per refused packet, an event each", 10, cycles, 0); err != nil {
		return err
	}
	fmt.Println("\n| what | value | target |")
	fmt.Println("| --- | --- | --- |")
	if err := b.flood(3 * time.Second); err != nil {
		return err
	}
	if err := b.million(); err != nil {
		return err
	}
	fmt.Printf("\nworst ratio: %.2f\n", worst)
	return nil
}

// overhead sends frames to a port with and without a watcher, in turn.
func (b *bench) overhead(what string, port uint16, cycles int, target float64) error {
	var off, on []float64
	for range cycles {
		ns, err := b.round(port)
		if err != nil {
			return err
		}
		off = append(off, ns...)
		w, err := b.watch()
		if err != nil {
			return err
		}
		if ns, err = b.round(port); err != nil {
			return err
		}
		on = append(on, ns...)
		if _, _, err := w.stop(); err != nil {
			return err
		}
	}
	slices.Sort(off)
	slices.Sort(on)
	a, z := off[len(off)/4], on[len(on)/4]
	limit := "-"
	if target > 0 {
		limit = fmt.Sprintf("<= %.2f", target)
		worst = min(worst, target/(z/a))
	}
	fmt.Printf("| %s | %.0f | %.0f | %.3f | %s |\n", what, a, z, z/a, limit)
	return nil
}

// round sends pieces of some milliseconds and returns the nanoseconds per frame of each.
func (b *bench) round(port uint16) (all []float64, err error) {
	const pieces, frames = 10, 1500
	err = b.client.Do(func() error {
		s, err := b.sender()
		if err != nil {
			return err
		}
		defer s.close()
		for range pieces {
			began := time.Now()
			for range frames {
				if err := s.send(4000, port); err != nil {
					return err
				}
			}
			all = append(all, float64(time.Since(began))/frames)
		}
		return nil
	})
	return all, err
}

// flood refuses all that one sender can send and counts the events that a watcher receives.
func (b *bench) flood(duration time.Duration) error {
	if err := b.weirDo("fw", "zero"); err != nil {
		return err
	}
	w, err := b.watch("deny", "udp")
	if err != nil {
		return err
	}
	sent := 0
	began := time.Now()
	err = b.client.Do(func() error {
		s, err := b.sender()
		if err != nil {
			return err
		}
		defer s.close()
		for time.Since(began) < duration {
			for range 100 {
				if err := s.send(4000, 10); err != nil {
					return err
				}
			}
			sent += 100
		}
		return nil
	})
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	time.Sleep(1500 * time.Millisecond) // losses are reported once a second
	events, lost, err := w.stop()
	if err != nil {
		return err
	}
	refused, err := b.counter(10)
	if err != nil {
		return err
	}
	rate := float64(events) / took
	worst = min(worst, rate/100000)
	fmt.Printf("| packets refused per second | %.0f | - |\n", float64(refused)/took)
	fmt.Printf("| events per second to `weir flow watch -j` | %.0f | >= 100000 |\n", rate)
	fmt.Printf("| refused packets with an event, with a lost event that was counted, with neither "+
		"| %d, %d, %d | neither: 0 |\n", events, lost, int64(refused)-int64(events)-int64(lost))
	if events+lost != refused {
		return fmt.Errorf("%d events and %d lost ones for %d refused packets", events, lost,
			refused)
	}
	return nil
}

// million makes a million states and reads the agent's memory, after the commands that walk them.
func (b *bench) million() error {
	const ports, sources = 62500, 16
	err := b.client.Do(func() error {
		s, err := b.sender()
		if err != nil {
			return err
		}
		defer s.close()
		for source := range sources {
			s.source(byte(source + 1))
			for port := range ports {
				if err := s.send(uint16(1024+port), 9); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.weirDo("flow", "top", "-j"); err != nil {
		return err
	}
	states, err := b.states()
	if err != nil {
		return err
	}
	private, all, err := memory.Of(b.agent.Process.Pid)
	if err != nil {
		return err
	}
	worst = min(worst, 120/private)
	fmt.Printf("| agent's own memory with %d states, MiB | %.0f | <= 120 |\n", states, private)
	fmt.Printf("| the same with memory shared with the kernel and files, MiB | %.0f | - |\n", all)
	if states < 990000 {
		return fmt.Errorf("only %d of %d states were made", states, ports*sources)
	}
	return nil
}
