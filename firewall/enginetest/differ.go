package enginetest

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// Subject is the engine under test.
type Subject interface {
	firewall.Engine
	// Evaluate evaluates one IP packet.
	Evaluate(in *firewall.Input, pkt []byte) (firewall.Verdict, error)
	// Sweep ends every state that has expired.
	Sweep(now time.Duration) error
}

// ticker is a Subject whose sweep can be watched at work.
type ticker interface {
	// Tick does the next small piece of the sweep.
	Tick(now time.Duration) error
}

// explainer is a Subject that can explain a packet, which changes nothing.
type explainer interface {
	Explain(in *firewall.Input, pkt []byte) (firewall.Verdict, error)
}

// Difference is a disagreement between the model and an engine.
type Difference struct {
	Case *Case
	Step int // index of the step after which they differed
	What string
}

// fewPerSource is how many half-open states a source may have in cases that are about that.
const fewPerSource = 2

// fewHalfOpen is how many half-open states there may be in cases that are about that.
const fewHalfOpen = 8

// fewTracks is how many tracks there may be in cases that are about that: the least that the kernel
// engine can have, one set.
const fewTracks = 8

// tracksReported marks in the coverage that the engine is a tracker. Of others few tracks are not
// asked.
const tracksReported = "tracks told"

// Track is what a limit counts by: a rule, and the parts of the tuple that its mask names.
type Track struct {
	Rule     uint64 // program.Rule.Key
	Proto    packet.Proto
	Src, Dst [16]byte
	Link     uint32 // of a link-local source of IPv6, which Src is without
	Ports    uint32 // source << 16 | destination
}

// tracker is a Subject that reports its tracks that count something, and for each a number
// that changes when the track is given to another tuple.
type tracker interface {
	Tracks() (map[Track]uint64, error)
}

// Run plays a case to the model and to a new engine and returns the first difference, or nil.
func (c *Case) Run(options firewall.Options,
	newSubject func(firewall.Options) (Subject, error)) (*Difference, error) {
	return c.run(options, newSubject, nil)
}

// run is Run, and counts in seen what the case covered.
func (c *Case) run(options firewall.Options, newSubject func(firewall.Options) (Subject, error),
	seen coverage) (*Difference, error) {
	if c.PerSource {
		options.MaxPerSource = fewPerSource
	}
	if c.FewHalfOpen {
		options.MaxHalfOpen = fewHalfOpen
	}
	if c.FewTracks {
		options.MaxTracks = fewTracks
	}
	options.Liberal, options.NoDHCP = c.Liberal, c.NoDHCP
	subject, err := newSubject(options)
	if err != nil {
		return nil, err
	}
	defer subject.Close()
	r := &runner{c: c, model: NewModel(options), subject: subject}
	r.model.seen = seen
	if err := r.load(0, nil); err != nil {
		return nil, err
	}
	for i := range c.Steps {
		what, err := r.step(&c.Steps[i])
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		if what != "" {
			return &Difference{Case: c, Step: i, What: what}, nil
		}
	}
	if what := r.compare(); what != "" {
		return &Difference{Case: c, Step: len(c.Steps) - 1, What: what}, nil
	}
	return nil, nil
}

// runner plays a case.
type runner struct {
	c       *Case
	model   *Model
	subject Subject
	now     time.Duration
}

// load gives both the rules of a set, and tables with them.
func (r *runner) load(set int, tables map[string][]rule.TableEntry) error {
	rs, err := rule.ParseFile("random", strings.Join(r.c.Rules[set], "\n"), nil)
	if err != nil {
		return err
	}
	o := rule.CompileOptions{Default: r.c.Default, Strict: r.c.Strict}
	p, err := rule.Compile(rs, o)
	if err != nil {
		return err
	}
	for name, entries := range tables {
		r.model.SetTable(name, entries)
	}
	r.model.Load(rs, o, Keys(p))
	for _, line := range r.c.Rules[set] {
		for word := range strings.FieldsSeq(line) {
			r.model.seen.note(ofWord, 0, word)
		}
	}
	if tables == nil {
		return r.subject.Load(p)
	}
	return r.subject.Replace(p, tables)
}

// step plays one step and returns how they differ after it, "" if they do not.
func (r *runner) step(s *Step) (string, error) {
	r.model.seen.note(ofStep, int(s.Kind), "taken")
	switch s.Kind {
	case StepPacket:
		r.now = s.Input.Now
		return r.packet(s)
	case StepSweep:
		r.now = s.Input.Now
		return r.compare(), nil
	case StepTick:
		r.now = s.Input.Now
		return r.tick(int(s.Number))
	case StepTable:
		r.model.SetTable(s.Name, s.Entries)
		return "", r.subject.SetTable(s.Name, s.Entries)
	case StepAdd:
		r.model.AddTable(s.Name, s.Entries[0])
		return "", r.subject.AddTable(s.Name, s.Entries[0])
	case StepDelete:
		was := r.model.DeleteTable(s.Name, s.Entries[0].Prefix)
		if err := r.subject.DeleteTable(s.Name, s.Entries[0].Prefix); was != (err == nil) {
			return fmt.Sprintf("delete %v from table %s: model had it: %v, engine: %v",
				s.Entries[0].Prefix, s.Name, was, err), nil
		}
	case StepInterfaces:
		r.model.SetInterfaces(s.Ifs)
		return "", r.subject.SetInterfaces(s.Ifs)
	case StepRoutes:
		r.model.SetRoutes(s.Routes)
		return "", r.subject.SetRoutes(s.Routes)
	case StepLoad:
		return "", r.load(s.Set, s.Tables)
	case StepZero:
		r.model.Zero(s.Number)
		return "", r.subject.Zero(s.Number)
	}
	return "", nil
}

// packet evaluates a packet with both.
func (r *runner) packet(s *Step) (string, error) {
	if what, err := r.explain(s); what != "" || err != nil {
		return what, err
	}
	before, err := r.tracks()
	if err != nil {
		return "", err
	}
	got, err := r.subject.Evaluate(&s.Input, s.Packet)
	if err != nil {
		return "", err
	}
	after, err := r.tracks()
	if err != nil {
		return "", err
	}
	left, err := r.there()
	if err != nil {
		return "", err
	}
	r.model.chosen = func(s *modelState) bool { return !left[incarnation(r.model.show(s))] }
	r.model.refused = &got
	if _, tells := r.subject.(tracker); tells && r.c.FewTracks {
		r.model.seen.note(ofMark, 0, tracksReported)
		r.model.reassignedTrack = func(t Track) (reassignedTrack, again bool) {
			was, is := before[t], after[t]
			again = is != 0 && was != 0 && was != is
			return is == 0 || again, again
		}
	}
	want := r.model.Evaluate(&s.Input, s.Packet)
	r.model.chosen, r.model.reassignedTrack = nil, nil
	if want.Rule == 0 { // before the rules there is no slot
		want.Slot, got.Slot = 0, 0
	}
	if got != want {
		return fmt.Sprintf("verdict\n  model   %+v\n  engine %+v", want, got), nil
	}
	return "", nil
}

// explain has a packet explained, and compares that with a model that evicts nothing.
func (r *runner) explain(s *Step) (string, error) {
	subject, ok := r.subject.(explainer)
	if !ok {
		return "", nil
	}
	got, err := subject.Explain(&s.Input, s.Packet)
	if err != nil {
		return "", err
	}
	want := r.model.clone().Evaluate(&s.Input, s.Packet)
	if want.Rule == 0 {
		want.Slot, got.Slot = 0, 0
	}
	if got != want {
		return fmt.Sprintf("explanation\n  model  %+v\n  engine %+v", want, got), nil
	}
	return "", nil
}

// tracks returns the engine's tracks, where the model may need them.
func (r *runner) tracks() (map[Track]uint64, error) {
	subject, ok := r.subject.(tracker)
	if !r.c.FewTracks || !ok {
		return nil, nil
	}
	return subject.Tracks()
}

// incarnation names a state and when it was made.
func incarnation(s firewall.State) string {
	return fmt.Sprint(identity(s), " ", s.Created)
}

// there returns the incarnations of the engine's states, where the model may need them.
func (r *runner) there() (map[string]bool, error) {
	if !r.c.PerSource && !r.c.FewHalfOpen {
		return nil, nil
	}
	all, err := r.states()
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, s := range all {
		there[incarnation(s)] = true
	}
	return there, nil
}

// tick lets the engine tick n times. The engine decides which states that ends, as long as they
// have expired. The model ends the same ones, since a state counts for limits until the engine
// removes it. All others must be there as they were.
func (r *runner) tick(n int) (string, error) {
	subject, ok := r.subject.(ticker)
	if !ok {
		return "", nil
	}
	for range n {
		if err := subject.Tick(r.now); err != nil {
			return "", err
		}
	}
	left, err := r.states()
	if err != nil {
		return "", err
	}
	there := map[string]bool{}
	for _, s := range left {
		there[identity(s)] = true
	}
	r.model.sweepUnless(r.now, func(s firewall.State) bool { return there[identity(s)] })
	want := r.model.States()
	r.model.seen.states(want)
	return diffStates(want, left), nil
}

// identity returns the fields that identify a state.
func identity(s firewall.State) string {
	return fmt.Sprint(s.Proto, s.From, s.To, s.Query, s.Link, s.FlowName)
}

// states returns those of the engine.
func (r *runner) states() ([]firewall.State, error) {
	var all []firewall.State
	for s, err := range r.subject.States() {
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// compare sweeps both and compares everything that can be read.
func (r *runner) compare() string {
	r.model.Sweep(r.now)
	if err := r.subject.Sweep(r.now); err != nil {
		return err.Error()
	}
	got, err := r.states()
	if err != nil {
		return err.Error()
	}
	want := r.model.States()
	r.model.seen.states(want)
	if d := diffStates(want, got); d != "" {
		return d
	}
	rules, err := r.subject.Rules()
	if err != nil {
		return err.Error()
	}
	model := r.model.Rules()
	for i := range model {
		if i >= len(rules) || rules[i] != model[i] {
			return fmt.Sprintf("counters of slot %d\n  model   %+v\n  engine %+v", i, model[i],
				rules[min(i, len(rules)-1)])
		}
	}
	decisions, err := r.subject.Decisions()
	if err != nil {
		return err.Error()
	}
	if model := r.model.Decisions(); !reflect.DeepEqual(decisions, model) {
		return fmt.Sprintf("counters of decisions\n  model   %+v\n  engine %+v", model, decisions)
	}
	return ""
}

// diffStates compares states in any order.
func diffStates(want, got []firewall.State) string {
	text := func(all []firewall.State) []string {
		var lines []string
		for _, s := range all {
			lines = append(lines, fmt.Sprintf("%+v", s))
		}
		sort.Strings(lines)
		return lines
	}
	w, g := text(want), text(got)
	if strings.Join(w, "\n") == strings.Join(g, "\n") {
		return ""
	}
	return fmt.Sprintf("states\n  model   %s\n  engine %s", strings.Join(w, "\n         "),
		strings.Join(g, "\n         "))
}

// String shows the case, the step and the difference.
func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s\nafter %s\n", d.Case.Seed, d.What, d.Case.Steps[d.Step].String())
	fmt.Fprintf(&b,
		"default %v, strict %v, few half-open states: %v, of a source: %v, tracks: %v, liberal: "+
			"%v, no DHCP: %v\n", d.Case.Default, d.Case.Strict,
		d.Case.FewHalfOpen, d.Case.PerSource, d.Case.FewTracks, d.Case.Liberal,
		d.Case.NoDHCP)
	for i, set := range d.Case.Rules {
		fmt.Fprintf(&b, "rules %d:\n  %s\n", i, strings.Join(set, "\n  "))
	}
	for i := range d.Case.Steps[:d.Step+1] {
		fmt.Fprintf(&b, "%d: %s\n", i, d.Case.Steps[i].String())
	}
	return b.String()
}

// String shows a step; a packet as text and in hex.
func (s *Step) String() string {
	switch s.Kind {
	case StepPacket:
		return fmt.Sprintf("%v %v random %#x tags %v segments %v: %s\n     %s", s.Input.Now,
			s.Input.Hook, s.Input.Random, s.Input.Tags, s.Input.Segments,
			describe(s.Packet), hex.EncodeToString(s.Packet))
	case StepSweep:
		return fmt.Sprintf("%v sweep and compare", s.Input.Now)
	case StepTick:
		return fmt.Sprintf("%v %d ticks", s.Input.Now, s.Number)
	case StepTable:
		return fmt.Sprintf("table %s = %v", s.Name, s.Entries)
	case StepAdd:
		return fmt.Sprintf("table %s add %v", s.Name, s.Entries[0])
	case StepDelete:
		return fmt.Sprintf("table %s delete %v", s.Name, s.Entries[0].Prefix)
	case StepInterfaces:
		return fmt.Sprintf("interfaces %v", s.Ifs)
	case StepRoutes:
		return fmt.Sprintf("routes %v", s.Routes)
	case StepLoad:
		return fmt.Sprintf("load rules %d with tables %v", s.Set, s.Tables)
	}
	return fmt.Sprintf("zero %d", s.Number)
}

// describe shows a packet as text.
func describe(b []byte) string {
	var p packet.Packet
	p.Decode(b)
	if p.Reason != packet.ReasonNone {
		return "malformed: " + p.Reason.String()
	}
	s := fmt.Sprintf("proto %d %v -> %v", p.Proto, netip.AddrPortFrom(p.Src(), p.SrcPort()),
		netip.AddrPortFrom(p.Dst(), p.DstPort()))
	switch {
	case p.Frag&packet.FragLater != 0:
		return fmt.Sprintf("%s fragment at %d of %d", s, p.FragOff(), p.IPID)
	case p.Proto == packet.ProtoTCP:
		s += fmt.Sprintf(" flags %#x seq %d ack %d win %d len %d", p.TCPFlags, p.Seq, p.Ack,
			p.Window(), p.PayloadLen())
	case p.IsICMP():
		s += fmt.Sprintf(" type %d code %d id %d", p.ICMPType(), p.ICMPCode(), p.ICMPID())
		if in, ok := p.Inner(b); ok {
			s += fmt.Sprintf(" about proto %d %v -> %v seq %d", in.Proto,
				netip.AddrPortFrom(in.Src(), in.SrcPort()), netip.AddrPortFrom(in.Dst(),
					in.DstPort()), in.Seq)
		}
	}
	if p.Frag&packet.FragFirst != 0 {
		s += fmt.Sprintf(" first fragment of %d", p.IPID)
	}
	return s
}
