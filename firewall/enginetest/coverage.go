package enginetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// aspect is a part of the language or of a verdict that the random cases must cover.
type aspect struct {
	kind string
	n    int    // which of its kind
	how  string // what became of it
}

// coverage counts how often the model met each aspect while an engine was compared with it. A nil
// coverage counts nothing.
type coverage map[aspect]int

func (c coverage) note(kind string, n int, how string) {
	if c != nil {
		c[aspect{kind, n, how}]++
	}
}

// The kinds of aspects.
const (
	ofWord      = "word"      // a word of a rule that was loaded
	ofStep      = "step"      // StepKind
	ofCondition = "condition" // op.Cond, evaluated
	// a bit that a condition wanted and found so: op.Cond << 8 | bit
	ofFlag     = "flag"
	ofAction   = "action"          // op.Action, done
	ofTrack    = "track"           // what came of it when all were in use
	ofMark     = "mark"            // of a rule: its state, log, tag, prob
	ofState    = "state"           // op.State of the rule that made it or looked it up
	ofLimit    = "limit by"        // op.LimitMask, one bit
	ofRate     = "rate by"         // op.LimitMask, one bit or none
	ofPipe     = "pipe by"         // a part of rule.PipeMask, 0 for none
	ofSegments = "segments"        // of a GSO packet in a pipe, 2 for more
	ofPhase    = "phase"           // flow.Phase of a state that was compared
	ofReason   = "reason"          // firewall.Reason
	ofUse      = "state use"       // firewall.StateUse
	ofAnswer   = "answer"          // firewall.Answer
	ofHook     = "hook"            // firewall.Direction, in a family
	ofDHCP     = "dhcp"            // firewall.Direction, of a client's packet that is essential
	ofProtocol = "state of a"      // protocol
	ofQuery    = "state of query"  // type of the ICMP query
	ofLink     = "state of a link" // of IPv4 or IPv6
	ofError    = "ICMP error"      // version << 8 | type
	ofHeader   = "extension"       // a bit of packet.Packet.ExtHdrs
)

// flagConds are the conditions on flags and their bits.
var flagConds = map[op.Cond][]uint32{
	op.CondFlags: {uint32(packet.FlagFIN), uint32(packet.FlagSYN), uint32(packet.FlagRST),
		uint32(packet.FlagPSH), uint32(packet.FlagACK),
		uint32(packet.FlagURG)},
	op.CondFrag:      {op.FragOffset, op.FragMF, op.FragDF, op.FragRF},
	op.CondIPOptions: {op.OptSSRR, op.OptLSRR, op.OptRR, op.OptTS},
	op.CondTOS:       {1, 2, 4, 8, 16},
}

// stateProtocols are the protocols whose states are counted separately.
var stateProtocols = []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDPLite,
	packet.ProtoICMP, packet.ProtoICMPv6, packet.ProtoSCTP, packet.ProtoGRE}

// test notes that a test of a rule was evaluated.
func (c coverage) test(t *rule.Test, is bool) {
	if c == nil {
		return
	}
	how := fmt.Sprint(is)
	if t.Not {
		how = "not " + how
	}
	c.note(ofCondition, int(t.Op), how)
	for _, bit := range flagConds[t.Op] {
		if is && t.B&bit != 0 {
			c.note(ofFlag, int(t.Op)<<8|int(bit),
				map[bool]string{true: "set", false: "clear"}[t.A&bit != 0])
		}
	}
}

// act notes that a rule acts on a packet.
func (c coverage) act(r *rule.Rule) {
	c.note(ofAction, int(r.Action.Op), "done")
	if r.Log {
		c.note(ofMark, 0, "log")
	}
	if r.Tag != 0 {
		c.note(ofMark, 0, "tag")
	}
}

// state notes that a rule made or found a state.
func (c coverage) state(r *rule.Rule, how string) {
	if c == nil {
		return
	}
	c.note(ofState, int(r.State.Op), how)
	if r.State.Op != op.StateCheck && r.State.Flow != "" {
		c.note(ofMark, 0, "named flow "+how)
	}
	if r.State.Op == op.StateCheck && r.State.Flow == "any" {
		c.note(ofMark, 0, "any flow "+how)
	}
	if r.Defer {
		c.note(ofMark, 0, "defer-action "+how)
	}
	if r.Liberal {
		c.note(ofMark, 0, "liberal "+how)
	}
	for bit := op.LimitMask(1); bit <= op.LimitDstPort; bit <<= 1 {
		if how == "made" && r.State.Mask&bit != 0 {
			c.note(ofLimit, int(bit), "counted")
		}
	}
}

// rate notes whether a rule with limit-rate had a token for a packet.
func (c coverage) rate(r *rule.Rule, had bool) {
	if c == nil {
		return
	}
	how := "had none"
	if had {
		how = "had a token"
	} else if r.Rate.Next {
		how = "had none, next rule"
	}
	for bit := op.LimitMask(0); bit <= op.LimitDstPort; bit = max(1, bit<<1) {
		if r.Rate.Mask&bit != 0 || r.Rate.Mask == bit {
			c.note(ofRate, int(bit), how)
		}
	}
}

// pipe notes whether a pipe carried a packet.
func (c coverage) pipe(m *rule.PipeMask, had bool) {
	if c == nil {
		return
	}
	how := "too much"
	if had {
		how = "carried"
	}
	for part, is := range pipeParts(m) {
		if is {
			c.note(ofPipe, part, how)
		}
	}
}

// pipeParts tells which parts of the tuple a mask keeps; the first is that it keeps none.
func pipeParts(m *rule.PipeMask) [8]bool {
	return [...]bool{*m == (rule.PipeMask{}), m.Src != 0, m.Dst != 0, m.Src6 != 0, m.Dst6 != 0,
		m.SrcPort != 0, m.DstPort != 0, m.Proto != 0}
}

// states notes which states were compared.
func (c coverage) states(all []firewall.State) {
	for _, s := range all {
		c.note(ofPhase, int(s.Phase), "compared")
		c.note(ofProtocol, int(s.Proto), "compared")
		c.note(ofQuery, int(s.Query), "compared")
		if s.Link != 0 && s.From.Addr().Is4() {
			c.note(ofLink, 4, "compared")
		} else if s.Link != 0 {
			c.note(ofLink, 6, "compared")
		}
	}
}

// failure records an ICMP error that goes to the source of its quote.
func (c coverage) failure(p *packet.Packet, quoted *packet.Packet) {
	how := "elsewhere"
	if quoted.Src() == p.Dst() {
		how = "to the source of its quote"
	}
	c.note(ofError, int(p.Version)<<8|int(p.ICMPType()), how)
}

// verdict records the verdict of a packet.
func (c coverage) verdict(dir firewall.Direction, p *packet.Packet, v *firewall.Verdict) {
	if c == nil {
		return
	}
	c.note(ofReason, int(v.Reason), "given")
	c.note(ofUse, int(v.State), "told")
	c.note(ofAnswer, int(v.Answer), "asked for")
	for bit := packet.ExtHopByHop; bit <= packet.ExtRouting0; bit <<= 1 {
		if p.ExtHdrs&bit != 0 && p.Reason == packet.ReasonNone {
			c.note(ofHeader, int(bit), "decided")
		}
	}
	if p.ExtHdrs&packet.ExtFragment != 0 && !p.IsFragment() {
		c.note(ofHeader, int(packet.ExtFragment), "of a whole packet")
	}
	if v.Reason == firewall.ReasonRule {
		c.note(ofHook, int(dir), fmt.Sprintf("version %d", p.Version))
	}
}

// expected lists what an engine with the whole language must cover.
func expected() []aspect {
	var all []aspect
	add := func(kind string, n int, how ...string) {
		for _, h := range how {
			all = append(all, aspect{kind, n, h})
		}
	}
	actions, options := rule.Keywords()
	for _, w := range append(actions, options...) {
		add(ofWord, 0, w)
	}
	for k := StepPacket; k <= StepZero; k++ {
		add(ofStep, int(k), "taken")
	}
	// CondTrue is any, which no rule needs to ask
	for o := op.CondTrue + 1; o.Word() != "unknown"; o++ {
		add(ofCondition, int(o), "true", "false", "not true", "not false")
	}
	for o, bits := range flagConds {
		for _, bit := range bits {
			add(ofFlag, int(o)<<8|int(bit), "set", "clear")
		}
	}
	for o := op.ActionAllow; o.String() != "unknown"; o++ {
		if o != op.ActionCheckState { // which never acts by itself
			add(ofAction, int(o), "done")
		}
	}
	for o := op.StateNone + 1; o.Word() != "unknown"; o++ {
		if o != op.StateCheck {
			add(ofState, int(o), "made")
		}
		if o.LooksUp() {
			add(ofState, int(o), "found")
		}
	}
	add(ofMark, 0, "deny_in", "log", "tag", "prob taken", "prob not taken", "named flow made",
		"named flow found", "any flow found",
		"defer-action made", "liberal made")
	add(ofTrack, 0, "given away", "no space for one", "no space when proved")
	for bit := op.LimitMask(1); bit <= op.LimitDstPort; bit <<= 1 {
		add(ofLimit, int(bit), "counted")
	}
	for bit := op.LimitMask(0); bit <= op.LimitDstPort; bit = max(1, bit<<1) {
		add(ofRate, int(bit), "had a token", "had none", "had none, next rule")
	}
	for part := range len(pipeParts(&rule.PipeMask{})) {
		add(ofPipe, part, "carried", "too much")
	}
	add(ofSegments, 1, "counted")
	add(ofSegments, 2, "counted")
	for p := flow.PhaseOpening; p <= flow.PhaseAnswered; p++ {
		add(ofPhase, int(p), "compared")
	}
	for r := firewall.ReasonRule; !strings.HasPrefix(r.String(), "reason-"); r++ {
		add(ofReason, int(r), "given")
	}
	for r := packet.ReasonNone + 1; int(r) < packet.NumReasons; r++ {
		add(ofReason, int(firewall.ReasonDecode)+int(r), "given")
	}
	for u := firewall.StateNone; u <= firewall.StateUntouched; u++ {
		add(ofUse, int(u), "told")
	}
	for a := firewall.AnswerNone; a <= firewall.AnswerUnreach6; a++ {
		add(ofAnswer, int(a), "asked for")
	}
	for _, dir := range []firewall.Direction{firewall.In, firewall.Out} {
		add(ofHook, int(dir), "version 4", "version 6")
		add(ofDHCP, int(dir), "version 4", "version 6")
	}
	for _, query := range []int{8, 13, 15, 17, 128, 139} {
		add(ofQuery, query, "compared")
	}
	add(ofLink, 4, "compared")
	add(ofLink, 6, "compared")
	for _, kind := range []int{4<<8 | 3, 4<<8 | 4, 4<<8 | 5, 4<<8 | 11, 4<<8 | 12, 6<<8 | 1,
		6<<8 | 2, 6<<8 | 3, 6<<8 | 4} {
		add(ofError, kind, "to the source of its quote", "elsewhere", "of a state")
	}
	for bit := packet.ExtHopByHop; bit <= packet.ExtRouting0; bit <<= 1 {
		add(ofHeader, int(bit), "decided")
	}
	add(ofHeader, int(packet.ExtFragment), "of a whole packet")
	for _, p := range stateProtocols {
		add(ofProtocol, int(p), "compared")
	}
	return all
}

// elsewhere are the reasons that no random case can give, and why.
var elsewhere = map[firewall.Reason]string{
	firewall.ReasonNotIP: "the differ hands over IP packets; frames are the business of " +
		"each engine's hook",
	firewall.ReasonStatesFull: "random cases have space for every state: what a full table " +
		"drops is the engine's choice",
	firewall.ReasonSpoof:          "pods' sources are bound in the kernel, outside the rules",
	firewall.ReasonMartian:        "as spoof",
	firewall.ReasonNATPorts:       "translation is the kernel engine's alone",
	firewall.ReasonCookie:         "SYN cookies are the kernel engine's alone",
	firewall.ReasonCookieRefused:  "as cookie",
	firewall.ReasonCookieRepeated: "as cookie",
	firewall.ReasonRatesFull:      "as states-full",
	firewall.ReasonNoBackend:      "as nat-ports",
	firewall.ReasonNoHop:          "where packets of fwd go is the kernel engine's alone",
	firewall.ReasonHopMTU:         "as no-hop",
	firewall.ReasonHopTTL:         "as no-hop",
	firewall.ReasonNoSocket:       "as no-hop",
	firewall.ReasonIPsec:          "as nat-ports",

	firewall.ReasonDecode + firewall.Reason(packet.ReasonLink): "of link headers, which these " +
		"packets do not have",
	firewall.ReasonDecode + firewall.Reason(packet.ReasonVLAN): "as bad-link",
}

// String names the aspect.
func (a aspect) String() string {
	name := fmt.Sprint(a.n)
	switch a.kind {
	case ofWord, ofMark:
		return a.kind + " " + a.how
	case ofCondition:
		name += " (" + op.Cond(a.n).Word() + ")"
	case ofFlag:
		name = fmt.Sprintf("%#x of %s", a.n&0xff, op.Cond(a.n>>8).Word())
	case ofAction:
		name = op.Action(a.n).String()
	case ofState:
		name = op.State(a.n).Word()
	case ofPhase:
		name = flow.Phase(a.n).String()
	case ofReason:
		name = firewall.Reason(a.n).String()
	}
	return a.kind + " " + name + " " + a.how
}

// coverageCases is how many cases an audit plays. They are always the same.
const coverageCases = 600

// RunCoverage compares an engine that has the whole language with the model on cases that are
// always the same. It fails for every word, condition, action, way to keep state and reason that
// these cases never met. A part of the language that the generators forget would else go unnoticed.
func RunCoverage(t *testing.T, options firewall.Options,
	newSubject func(firewall.Options) (Subject, error)) {
	t.Helper()
	seen := coverage{}
	for seed := range uint64(coverageCases) {
		c := RandomCase(seed, program.AllFeatures, options, stepsPerCase)
		d, err := c.run(options, newSubject, seen)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d != nil {
			t.Fatal(d)
		}
	}
	for r, why := range elsewhere {
		if seen[aspect{ofReason, int(r), "given"}] > 0 {
			t.Errorf("reason %v was met, though %q", r, why)
		}
	}
	rarest := map[string]aspect{}
	for _, a := range expected() {
		// of that each engine has its own idea
		if a.kind == ofReason && (elsewhere[firewall.Reason(a.n)] != "" ||
			a.n == int(firewall.ReasonHalfOpenFull)) {
			continue
		}
		tracks := a.kind == ofTrack || a.kind == ofReason && a.n == int(firewall.ReasonTracksFull)
		if tracks && seen[aspect{ofMark, 0, tracksReported}] == 0 {
			continue
		}
		if seen[a] == 0 {
			t.Errorf("never compared: %v", a)
		}
		if least, ok := rarest[a.kind]; !ok || seen[a] < seen[least] {
			rarest[a.kind] = a
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(rarest)) {
		t.Logf("rarest: %v, %d times", rarest[kind], seen[rarest[kind]])
	}
}
