package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/firewall"
)

func fwReplayCommand(c *call) action {
	asJSON := c.json("")
	file := c.StringP("rules", "f", "", "evaluate with the rule file `FILE`")
	c.requires("rules")
	out := c.StringP("write", "w", "",
		"write the packets that passed to `OUT`, as pcapng if its name ends so, else as pcap")
	iface := c.String("iface", "",
		"`NAME` of the interface (default: that of the capture, or eth0)")
	quiet := c.BoolP("quiet", "q", false, "print only the rules with their counters")
	var me addresses
	c.Var(&me, "me", "an `ADDRESS` of the host that captured; may be given several times")
	c.takes(1, 1)
	return func() error {
		name, text, err := c.readFile(*file)
		if err != nil {
			return c.failed(err)
		}
		from, capture, err := c.open(c.Arg(0))
		if err != nil {
			return c.failed(err)
		}
		defer capture.Close()
		passed, err := newPassed(*out)
		if err != nil {
			return c.failed(err)
		}
		defer passed.abandon()
		buffered := bufio.NewWriterSize(c.out, 1<<16)
		var show replayPrinter = &replayText{w: buffered, c: c, quiet: *quiet}
		if *asJSON {
			show = &replayJSON{w: buffered, quiet: *quiet}
		}
		show.begin()
		r := offline.Replay{Name: name, Text: text, Capture: from, Me: me, Iface: *iface}
		s, err := r.Run(c.ctx, capture, func(j *offline.PacketVerdict) error {
			show.packet(j)
			return passed.write(j)
		})
		if err == nil {
			err = passed.finish()
		}
		show.end(s, err)
		if flushed := buffered.Flush(); err == nil {
			err = flushed
		}
		return c.failed(err)
	}
}

// replayPrinter prints each verdict, and at the end a summary, unless there was an error.
type replayPrinter interface {
	begin()
	packet(*offline.PacketVerdict)
	end(*offline.Summary, error)
}

type replayText struct {
	w     io.Writer
	c     *call
	quiet bool
}

func (p *replayText) begin() {
	if !p.quiet {
		fmt.Fprintf(p.w, "%6s %-15s %-3s %-8s %-7s %5s %-14s %s\n", "packet", "time", "dir",
			"iface", "verdict", "rule", "reason", "what")
	}
}

func (p *replayText) packet(j *offline.PacketVerdict) {
	if p.quiet {
		return
	}
	v := viewOf(j)
	fmt.Fprintf(p.w, "%6d %-15s %-3s %-8s %-7s %5d %-14s %s\n", v.Packet,
		j.Record.Time.Format("15:04:05.000000"), v.Dir,
		p.c.show(v.Iface), v.Verdict, v.Rule, v.Reason, p.c.show(v.What))
}

func (p *replayText) end(s *offline.Summary, err error) {
	if err != nil {
		return
	}
	if !p.quiet {
		fmt.Fprintln(p.w)
	}
	for index, r := range s.Rules {
		fmt.Fprintf(p.w, "%05d %8d %10d %s\n", r.Number, r.Packets, r.Bytes,
			p.c.show(s.Texts[index]))
	}
	for _, reason := range beside(s) {
		fmt.Fprintf(p.w, "decided before or beside the rules: %s %d\n", reason, s.Reasons[reason])
	}
	if s.Cut > 0 {
		fmt.Fprintf(p.w, "packets without a verdict, since the snap length cut their headers: %d\n",
			s.Cut)
	}
	fmt.Fprintf(p.w, "%s, %d passed, %d dropped, %s at the end\n", plural(s.Packets, "packet"),
		s.Passed, s.Packets-s.Passed-s.Cut, plural(s.States, "state"))
}

// beside lists the reasons, other than rules, that decided packets.
func beside(s *offline.Summary) []firewall.Reason {
	var all []firewall.Reason
	for r, n := range s.Reasons {
		if n > 0 && r != firewall.ReasonRule {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	return all
}

// verdictView is one packet in JSON.
type verdictView struct {
	Packet  int    `json:"packet"`
	Time    string `json:"time"`
	Dir     string `json:"dir"`
	Iface   string `json:"iface"`
	Verdict string `json:"verdict"`
	Rule    uint16 `json:"rule"`
	Reason  string `json:"reason"`
	What    string `json:"what"`
}

func viewOf(j *offline.PacketVerdict) verdictView {
	v := verdictView{Packet: j.Number,
		Time: j.Record.Time.Format("2006-01-02T15:04:05.000000000Z07:00"), Dir: "in",
		Iface:   j.Iface,
		Verdict: "drop", Rule: j.Verdict.Rule, Reason: j.Verdict.Reason.String(),
		What: j.Packet.String()}
	if j.Dir == firewall.Out {
		v.Dir = "out"
	}
	if j.Verdict.Pass {
		v.Verdict = "pass"
	}
	if j.Cut != "" {
		v.Verdict, v.Reason, v.What = "none", "cut", j.Cut
	}
	if j.Verdict.Reason == firewall.ReasonNotIP {
		v.What = fmt.Sprintf("ethertype 0x%04x", j.Frame.EtherType)
	}
	return v
}

// replayJSON prints one object piece by piece: a capture can be long.
type replayJSON struct {
	w     io.Writer
	quiet bool
	some  bool
}

func (p *replayJSON) begin() { fmt.Fprint(p.w, "{\n  \"version\": 1,\n  \"verdicts\": [") }

func (p *replayJSON) packet(j *offline.PacketVerdict) {
	if p.quiet {
		return
	}
	if p.some {
		fmt.Fprint(p.w, ",")
	}
	p.some = true
	text, err := json.Marshal(viewOf(j))
	if err != nil {
		panic(err) // plain strings and numbers
	}
	fmt.Fprintf(p.w, "\n    %s", text)
}

func (p *replayJSON) end(s *offline.Summary, err error) {
	if err != nil {
		text, _ := json.Marshal(err.Error()) // a string
		fmt.Fprintf(p.w, "\n  ],\n  \"error\": %s\n}\n", text)
		return
	}
	type ruleView struct {
		Number  uint16 `json:"number"`
		Text    string `json:"text"`
		Packets uint64 `json:"packets"`
		Bytes   uint64 `json:"bytes"`
	}
	var rules []ruleView
	for index, r := range s.Rules {
		rules = append(rules, ruleView{r.Number, s.Texts[index], r.Packets, r.Bytes})
	}
	reasons := map[string]uint64{}
	for _, r := range beside(s) {
		reasons[r.String()] = s.Reasons[r]
	}
	text, err := json.MarshalIndent(map[string]any{"packets": s.Packets, "passed": s.Passed,
		"cut": s.Cut, "rules": rules, "reasons": reasons,
		"states": s.States}, "  ", "  ")
	if err != nil {
		panic(err) // plain strings and numbers
	}
	fmt.Fprintf(p.w, "\n  ],\n  \"sum\": %s\n}\n", text)
}
