package offline

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
)

// Why explains what a rule file would do with a packet, without a node. me are the addresses of the
// host in question.
func Why(name, text string, me []netip.Prefix, about string) (api.Explanation, error) {
	set, p, err := rulefile.Parse(name, text, rulefile.SystemNames())
	if err == nil {
		err = rulefile.ReadLists(set, nil, rulefile.ReadList)
	}
	if err != nil {
		return api.Explanation{}, err
	}
	q, err := ParseQuestion(about)
	if err != nil {
		return api.Explanation{}, err
	}
	ifs := imagined(me, q.recv, q.xmit)
	e, err := Engine(SmallTables(firewall.DefaultOptions()), p, set, ifs, nil)
	if err != nil {
		return api.Explanation{}, err
	}
	defer e.Close()
	return Explain(e, p, q, ifs, 0)
}

// imagined makes up interfaces with the names in a question; the last one has the addresses, and
// local routes to networks that are named without an address in them.
func imagined(me []netip.Prefix, names ...string) []firewall.Interface {
	ifs := []firewall.Interface{{Index: 1, Name: "lo"}}
	for _, name := range names {
		known := name == ""
		for _, i := range ifs {
			known = known || i.Name == name
		}
		if !known {
			ifs = append(ifs, firewall.Interface{Index: uint32(len(ifs) + 1), Name: name})
		}
	}
	last := &ifs[len(ifs)-1]
	for _, p := range me {
		if p == p.Masked() && p.Bits() < p.Addr().BitLen()-1 {
			last.Local = append(last.Local, p)
		} else {
			last.Addrs = append(last.Addrs, p)
		}
	}
	return ifs
}

// Explain asks an engine about a packet at a time.
func Explain(e *soft.Engine, p *program.Program, q Question, ifs []firewall.Interface,
	now time.Duration) (api.Explanation, error) {
	hook, err := q.hook(ifs)
	if err != nil {
		return api.Explanation{}, err
	}
	x := e.Explain(&firewall.Input{Hook: hook, Now: now}, q.bytes)
	a := api.Explanation{Version: api.Version, Packet: q.Packet.String(), Passed: x.Verdict.Pass,
		Rule:   x.Verdict.Rule,
		Reason: x.Verdict.Reason.String(), Answer: answerText(x.Verdict),
		State: x.Verdict.State == firewall.StateNew,
		Tries: []api.Try{}}
	if x.Verdict.Rule != 0 {
		a.Text = p.Texts[x.Verdict.Slot]
	}
	for _, t := range x.Tries {
		a.Tries = append(a.Tries, api.Try{Rule: t.Number, Text: p.Texts[t.Slot],
			Outcome: t.Outcome.String(), Index: int(t.Slot)})
	}
	return a, nil
}

// answerText describes the answer to a refused packet.
func answerText(v firewall.Verdict) string {
	switch v.Answer {
	case firewall.AnswerReset:
		return "TCP reset"
	case firewall.AnswerUnreach:
		return fmt.Sprintf("ICMP unreachable, code %d", v.Code)
	case firewall.AnswerUnreach6:
		return fmt.Sprintf("ICMPv6 unreachable, code %d", v.Code)
	}
	return ""
}
