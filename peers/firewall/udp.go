package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
)

// segment is how long one contender sends in a cycle.
const segment = 120 * time.Millisecond

// measureUDP runs the cycles of one row on a thread of its own in the client's namespace.
func (b *bench) measureUDP(n int, modes []mode, flows uint32) (out map[string][]float64,
	err error) {
	sink, err := b.server.ListenPacket("udp4", serverAddr+":9")
	if err != nil {
		return nil, err
	}
	defer sink.Close()
	sink.(*net.UDPConn).SetReadBuffer(1)
	err = b.client.Do(func() error {
		if err := pin(1); err != nil {
			return err
		}
		s, err := newSender(b.from, b.to)
		if err != nil {
			return err
		}
		defer s.close()
		out, err = cycles(n, modes, func() (float64, error) {
			// Settling: caches, and with many flows the states of all of them.
			settle := segment / 4
			if flows > 1 {
				settle = 3 * segment
			}
			if _, err := s.send(flows, settle); err != nil {
				return 0, err
			}
			return s.send(flows, segment)
		})
		return err
	})
	return out, err
}

const (
	weirUDP = "add check-state\nadd allow udp from any to me 9 keep-state\n"
	nftUDP  = `table inet f { chain input { type filter hook input priority 0; policy drop;
		ct state established,related accept
		udp dport 9 ct state new accept
		tcp dport 22 ct state new accept
		icmp type echo-request accept
	}
}
`
)

// udpFlows measures states: one flow, many flows, only new flows.
func (b *bench) udpFlows(n int) error {
	fmt.Print("### UDP, 60-byte frames, CPU ns per packet over no firewall\n\n" +
		"| flows | none | weir | nft | share of nft's cost | target |\n" +
		"| --- | --- | --- | --- | --- | --- |\n")
	// One-way flows stay half-open: let there be as many of them as of others, as nft does.
	o := firewall.DefaultOptions()
	o.MaxHalfOpen = o.MaxStates
	if err := b.open(o); err != nil {
		return err
	}
	for _, row := range []struct {
		name   string
		flows  uint32
		target float64
	}{{"1", 1, 0.40}, {"100,000 in turn", 100000, 0.65}, {"every packet a new one", 0, 0.45}} {
		progress("udp, flows: " + row.name)
		if err := b.load(weirUDP); err != nil {
			return err
		}
		r, err := b.measureUDP(n, []mode{b.none(), b.weir(), b.nft("nft", nftUDP)}, row.flows)
		if err != nil {
			return err
		}
		share := shareOf(r["weir"], r["nft"], r["none"])
		fmt.Printf("| %s | %.0f | %+.0f | %+.0f | %.2f | %s |\n", row.name, slices.Min(r["none"]),
			over(r["weir"], r["none"]), over(r["nft"], r["none"]),
			share, atMost(share, row.target))
	}
	fmt.Println()
	return nil
}

// udpRules measures rules without state, and that many of them cost established flows nothing.
func (b *bench) udpRules(n int) error {
	fmt.Print("### UDP, one flow, behind many rules that do not match, CPU ns per packet over no " +
		"firewall\n\n" +
		"| rules ahead | weir | nft, linear | nft, a set | weir / linear | target | weir / set " +
		"| target |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, row := range []struct {
		rules  int
		target float64
	}{{1000, 0.02}, {10000, 0.005}} {
		progress(fmt.Sprintf("udp behind %d rules", row.rules))
		weir, linear, set := ahead(row.rules)
		if err := b.load(weir + "add 60000 allow udp from any to any 9\n"); err != nil {
			return err
		}
		r, err := b.measureUDP(n, []mode{b.none(), b.weir(), b.nft("linear", linear),
			b.nft("set", set)}, 1)
		if err != nil {
			return err
		}
		toLinear, toSet := shareOf(r["weir"], r["linear"], r["none"]),
			shareOf(r["weir"], r["set"], r["none"])
		fmt.Printf("| %d | %+.0f | %+.0f | %+.0f | %.4f | %s | %.2f | %s |\n", row.rules,
			over(r["weir"], r["none"]), over(r["linear"], r["none"]),
			over(r["set"], r["none"]), toLinear, atMost(toLinear, row.target), toSet,
			atMost(toSet, 1))
	}
	fmt.Println()
	progress("established flows behind 10000 rules")
	if err := b.load(weirUDP); err != nil {
		return err
	}
	few, err := b.measureUDP(n, []mode{b.none(), b.weir()}, 1)
	if err != nil {
		return err
	}
	weir, _, _ := ahead(10000)
	if err := b.load("add 1 check-state\n" + weir +
		"add 60000 allow udp from any to me 9 keep-state\n"); err != nil {
		return err
	}
	many, err := b.measureUDP(n, []mode{b.none(), b.weir()}, 1)
	if err != nil {
		return err
	}
	fmt.Printf("An established flow costs %+.0f ns under 2 rules and %+.0f ns under 10,000.\n\n",
		over(few["weir"], few["none"]), over(many["weir"], many["none"]))
	return nil
}

func over(v, base []float64) float64 { return slices.Min(v) - slices.Min(base) }

// ahead returns n rules that do not match the traffic: for Weir, for nft one by one, and for nft as
// its manual would have it, one set.
func ahead(n int) (weir, linear, set string) {
	var w, l, s strings.Builder
	l.WriteString("table inet f { chain input { type filter hook input priority 0; policy drop;\n")
	s.WriteString("table inet f { set bad { type ipv4_addr . inet_service; flags interval; " +
		"elements = {")
	for i := range n {
		net, port := fmt.Sprintf("10.%d.%d.0/24", 100+i/250, i%250), 1000+i
		fmt.Fprintf(&w, "add %d deny udp from %s to any %d\n", i+2, net, port)
		fmt.Fprintf(&l, "ip saddr %s udp dport %d drop\n", net, port)
		if i > 0 {
			s.WriteString(",")
		}
		fmt.Fprintf(&s, "%s . %d", net, port)
	}
	l.WriteString("udp dport 9 accept\n}\n}\n")
	s.WriteString("}; }\nchain input { type filter hook input priority 0; policy drop;\n" +
		"ip saddr . udp dport @bad drop\nudp dport 9 accept\n}\n}\n")
	return w.String(), l.String(), s.String()
}
