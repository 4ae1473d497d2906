package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weirnet/weir/firewall"
)

// cpus measures the gain of a second CPU: flows of its own, and the other direction of the same
// flows.
func (b *bench) cpus(n int) error {
	sink, err := b.server.ListenPacket("udp4", serverAddr+":9")
	if err != nil {
		return err
	}
	defer sink.Close()
	sink.(*net.UDPConn).SetReadBuffer(1)
	o := firewall.DefaultOptions()
	o.MaxHalfOpen, o.MaxPerSource = o.MaxStates, 0
	if err := b.open(o); err != nil {
		return err
	}
	if err := b.load("add check-state\nadd allow udp from any to me 9 limit src-addr 20000\n" +
		"add allow udp from me to any out keep-state\n"); err != nil {
		return err
	}
	fmt.Print("### Two CPUs, UDP, packets/s of both over those of one, limits on\n\n" +
		"| flows | none | weir | target |\n| --- | --- | --- | --- |\n")
	for _, row := range []struct {
		name   string
		parts  []cpuPart
		target float64
	}{
		{"disjoint, 64 on each CPU",
			[]cpuPart{{cpu: 0, first: firstForeign}, {cpu: 1, first: firstForeign + perPart}}, 1.9},
		{"64, one direction on each CPU",
			[]cpuPart{{cpu: 0, first: firstForeign, back: true}, {cpu: 1, first: firstForeign}},
			1.6},
	} {
		progress("two CPUs: " + row.name)
		gain := map[string]spread{}
		for _, m := range []mode{b.none(), b.weir()} {
			r, err := cycles(n, []mode{m}, func() (float64, error) { return b.gain(row.parts) })
			if err != nil {
				return err
			}
			gain[m.name] = spreadOf(r[m.name])
		}
		fmt.Printf("| %s | %v | %v | %s |\n", row.name, gain["none"], gain["weir"],
			atLeast(gain["weir"].mid, row.target))
	}
	fmt.Println()
	return nil
}

// cpuPart is one CPU's part: perPart flows from `first` on, from the client to the server, or back.
type cpuPart struct {
	cpu   int
	first uint32
	back  bool
}

// firstForeign is the first flow whose address the client does not have: it takes what comes back
// without an answer.
const (
	perPart      = 64
	firstForeign = 1 << 13
)

// gain returns the sum of what each part carries beside the other, divided by what it carries
// alone.
func (b *bench) gain(parts []cpuPart) (float64, error) {
	alone := make([]float64, len(parts))
	for i := range parts {
		rates, err := b.carry(parts[i : i+1])
		if err != nil {
			return 0, err
		}
		alone[i] = rates[0]
	}
	both, err := b.carry(parts)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for i := range both {
		sum += both[i] / alone[i]
	}
	return sum, nil
}

// carry lets parts send at once and returns the packets per second of each.
func (b *bench) carry(parts []cpuPart) ([]float64, error) {
	rates, errs := make([]float64, len(parts)), make([]error, len(parts))
	var wg sync.WaitGroup
	for i, l := range parts {
		wg.Go(func() {
			node, from, to := b.client, b.from, b.to
			if l.back {
				node, from, to = b.server, b.to, b.from
			}
			errs[i] = node.Do(func() error {
				if err := pin(l.cpu); err != nil {
					return err
				}
				s, err := newSender(from, to)
				if err != nil {
					return err
				}
				defer s.close()
				if l.back {
					err = s.turn()
				}
				if err == nil {
					rates[i], err = s.rate(l.first, perPart, segment)
				}
				return err
			})
		})
	}
	wg.Wait()
	return rates, errors.Join(errs...)
}

// rate sends flows first to first+n-1 in turn for a while and returns the packets per second.
func (s *sender) rate(first, n uint32, d time.Duration) (float64, error) {
	count, next := 0, uint32(0)
	began := time.Now()
	for time.Since(began) < d {
		for k := range s.frames {
			s.flow(k, first+next)
			next = (next + 1) % n
		}
		sent, err := s.batch()
		if err != nil {
			return 0, err
		}
		count += sent
	}
	return float64(count) / time.Since(began).Seconds(), nil
}
