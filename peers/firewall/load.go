package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirnet/weir/rule"
)

// loads measures how long changes take.
func (b *bench) loads(n int) error {
	progress("loads")
	fmt.Print("### Changes\n\n| what | time | target |\n| --- | --- | --- |\n")
	weir, _, _ := ahead(10000)
	rules := "add check-state\n" + weir + "add 60000 allow udp from any to me 9 keep-state\n"
	took, compiled := time.Hour, time.Hour
	for range min(n, 5) {
		began := time.Now()
		p, err := compile(rules)
		if err != nil {
			return err
		}
		compiled = min(compiled, time.Since(began))
		began = time.Now()
		if err := b.engine.Load(p); err != nil {
			return err
		}
		took = min(took, time.Since(began))
	}
	fmt.Printf("| 10,000 rules parsed and compiled | %.0f ms | |\n"+
		"| loaded and in force | %.0f ms | %s |\n", ms(compiled), ms(took), atMost(ms(took), 300))

	entries := make([]rule.TableEntry, 1<<20)
	for i := range entries {
		a := netip.AddrFrom4([4]byte{byte(11 + i>>20), byte(i >> 12), byte(i >> 4), byte(i << 4)})
		entries[i] = rule.TableEntry{Prefix: netip.PrefixFrom(a, 28), Value: uint32(i)}
	}
	began := time.Now()
	if err := b.engine.SetTable("big", entries); err != nil {
		return err
	}
	took = time.Since(began)
	fmt.Printf("| a table of %d prefixes | %.2f s | %s |\n", len(entries), took.Seconds(),
		atMost(took.Seconds(), 5))
	took = time.Hour
	for i := range 200 {
		began := time.Now()
		if err := b.engine.AddTable("big",
			rule.TableEntry{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{99, 0, 0,
				byte(i)}), 32)}); err != nil {
			return err
		}
		took = min(took, time.Since(began))
	}
	fmt.Printf("| one entry of it | %.3f ms | %s |\n\n", ms(took), atMost(ms(took), 1))
	return b.engine.SetTable("big", nil)
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
