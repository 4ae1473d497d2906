package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/packet"
)

// Replay evaluates a capture by a rule file.
type Replay struct {
	Name, Text string // the rule file
	Capture    string // the name of the capture, for errors
	// addresses of the host that captured: of Iface, or else of the first interface but lo. A
	// network without an address of a host is what a local route leads to (--me 192.0.2.0/24).
	Me []netip.Prefix
	// interface of every packet; "" for the one that the capture names, or eth0
	Iface string
	// Event, if set, is called with the events that a node would have reported, at the times of the
	// capture. It must not keep the event.
	Event func(*observe.Event)
}

// PacketVerdict is a packet of a capture and its verdict.
type PacketVerdict struct {
	Number  int // from 1
	Record  *pcap.Record
	Frame   packet.Frame
	Packet  *packet.Packet // the zero Packet when the frame holds no IP, or was cut
	Dir     firewall.Direction
	Iface   string
	Verdict firewall.Verdict
	// Cut says in which header a short snap length has cut the frame, so that there is no verdict:
	// Verdict is zero then. It is "" when all is there that rules and states read.
	Cut string
}

// Summary is the result of a whole capture.
type Summary struct {
	Packets, Passed int
	Cut             int                    // without a verdict, see PacketVerdict
	Rules           []firewall.RuleCounter // by rule index
	Texts           []string               // by rule index
	Reasons         map[firewall.Reason]uint64
	States          int // live at the end
}

// replayer is a replay under way.
type replayer struct {
	Replay
	engine *soft.Engine
	worker *soft.Worker
	random *rand.Rand
	ifs    []firewall.Interface
	byName map[string]uint32  // index
	me     firewall.Interface // of the addresses
	first  time.Time
	now    time.Duration              // of the capture's clock; never goes back
	swept  time.Duration              // when
	beside map[firewall.Reason]uint64 // decided before the engine
}

// Run evaluates a capture packet by packet and hands each to report, which must not keep it. prob
// options draw from a generator with a fixed seed, so that a replay can be repeated.
func (r Replay) Run(ctx context.Context, capture io.Reader,
	report func(*PacketVerdict) error) (*Summary, error) {
	set, program, err := rulefile.Parse(r.Name, r.Text, rulefile.SystemNames())
	if err == nil {
		err = rulefile.ReadLists(set, nil, rulefile.ReadList)
	}
	if err != nil {
		return nil, err
	}
	p := &replayer{Replay: r, random: rand.New(rand.NewPCG(1, 2)), now: time.Second,
		beside: map[firewall.Reason]uint64{}}
	p.ifs, p.byName = imagined(r.Me, r.Iface), map[string]uint32{}
	p.me = p.ifs[len(p.ifs)-1]
	for _, i := range p.ifs {
		p.byName[i.Name] = i.Index
	}
	o := soft.Options{Options: firewall.DefaultOptions()}
	if r.Event != nil {
		o.OnEvent = p.publish
	}
	if p.engine, err = newEngine(o, program, set, p.ifs, nil); err != nil {
		return nil, err
	}
	defer p.engine.Close()
	p.worker = p.engine.Worker(0)
	reader, err := pcap.NewReader(capture)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Capture, err)
	}
	s := &Summary{Texts: program.Texts}
	for ctx.Err() == nil {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return s, p.finish(s)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: after packet %d: %w", r.Capture, s.Packets, err)
		}
		s.Packets++
		j, err := p.evaluate(s.Packets, &record)
		if err != nil {
			return nil, fmt.Errorf("packet %d: %w", s.Packets, err)
		}
		if j.Verdict.Pass {
			s.Passed++
		}
		if j.Cut != "" {
			s.Cut++
		}
		if err := report(j); err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

func (p *replayer) finish(s *Summary) (err error) {
	p.engine.Sweep(p.now)
	if s.Rules, err = p.engine.Rules(); err != nil {
		return err
	}
	for range p.engine.States() {
		s.States++
	}
	decisions, err := p.engine.Decisions()
	s.Reasons = firewall.ByReason(decisions)
	for r, n := range p.beside {
		s.Reasons[r] += n
	}
	return err
}

// evaluate returns the verdict of one frame.
func (p *replayer) evaluate(number int, record *pcap.Record) (*PacketVerdict, error) {
	p.advance(record.Time)
	j := &PacketVerdict{Number: number, Record: record, Packet: new(packet.Packet)}
	frame := whole(record)
	data := withLength(record.Link, frame)
	j.Frame = j.Packet.DecodeFrame(record.Link, data)
	captured := len(record.Data) - (len(frame) - len(data))
	if header := cutIn(record.Link, data, captured, j.Packet, j.Frame); header != "" {
		j.Cut = fmt.Sprintf("%d of %d bytes, cut in the %s", len(record.Data), record.Len, header)
		*j.Packet = packet.Packet{}
	}
	j.Dir = p.direction(j)
	index, err := p.iface(j)
	if err != nil {
		return nil, err
	}
	hook := firewall.Hook{Dir: j.Dir, Recv: index}
	if j.Dir == firewall.Out {
		hook = firewall.Hook{Dir: j.Dir, Xmit: index}
	}
	switch {
	case j.Cut != "":
	case j.Packet.Version == 0 && j.Packet.Reason == packet.ReasonNone:
		j.Verdict = firewall.Verdict{Pass: true, Reason: firewall.ReasonNotIP}
		p.beside[j.Verdict.Reason]++
	case !j.Frame.IsIP():
		j.Verdict = firewall.Verdict{Reason: firewall.ReasonDecode +
			firewall.Reason(j.Packet.Reason)}
		p.beside[j.Verdict.Reason]++
	default:
		j.Verdict = p.worker.Evaluate(&firewall.Input{Hook: hook, Now: p.now,
			Random: p.random.Uint32()}, data[j.Frame.L3:])
	}
	return j, nil
}

// maxReplayed is how many interfaces packets of one capture may have: each makes a new list for the
// engine.
const maxReplayed = 1024

// nameOf returns the name of an interface by its index, which is its position plus one.
func (p *replayer) nameOf(index uint32) string {
	if index == 0 || int(index) > len(p.ifs) {
		return ""
	}
	return p.ifs[index-1].Name
}

// publish passes an event on with the capture's time and names.
func (p *replayer) publish(ev *firewall.Event) {
	e := observe.Event{Event: *ev, At: p.first.Add(time.Duration(ev.Time) - time.Second)}
	e.Recv, e.Xmit = p.nameOf(ev.Hook.Recv), p.nameOf(ev.Hook.Xmit)
	p.Event(&e)
}

// sweepEvery is how often a node's sweep passes over a table of the usual size (bpf/lib/sweep.h).
// Until then a state that has expired has its place in the table and in limits.
const sweepEvery = time.Second

// advance sets the clock. Captures of several CPUs are not quite in order: the clock stands still
// then.
func (p *replayer) advance(at time.Time) {
	if p.first.IsZero() {
		p.first = at
	}
	p.now = max(p.now, time.Second+at.Sub(p.first))
	if p.now-p.swept >= sweepEvery {
		p.engine.Sweep(p.now)
		p.swept = p.now
	}
}

// direction returns the direction of a packet: from the capture, or else from the source address.
func (p *replayer) direction(j *PacketVerdict) firewall.Direction {
	out := j.Packet.Version != 0 && p.me.IsMine(j.Packet.Src())
	switch {
	case j.Record.Direction != pcap.Unknown:
		out = j.Record.Direction == pcap.Outbound
	case j.Record.Link == packet.LinkSLL || j.Record.Link == packet.LinkSLL2:
		out = j.Frame.Outgoing
	}
	if out {
		return firewall.Out
	}
	return firewall.In
}

// iface returns the index of the packet's interface, which the engine learns when it is new.
func (p *replayer) iface(j *PacketVerdict) (uint32, error) {
	switch {
	case p.Iface != "":
		j.Iface = p.Iface
	case j.Record.Interface != "":
		j.Iface = j.Record.Interface
	default:
		j.Iface = "eth0"
	}
	if index, known := p.byName[j.Iface]; known {
		return index, nil
	}
	if len(p.ifs) >= maxReplayed {
		return 0, fmt.Errorf("packets of more than %d interfaces", maxReplayed)
	}
	one := firewall.Interface{Index: uint32(len(p.ifs) + 1), Name: j.Iface}
	p.byName[j.Iface] = one.Index
	p.ifs = slices.Clone(p.ifs) // the engine keeps what it was given
	if len(p.ifs) == 1 {        // lo, which had the addresses until there was another
		one.Addrs, one.Local = p.ifs[0].Addrs, p.ifs[0].Local
		p.ifs[0].Addrs, p.ifs[0].Local = nil, nil
	}
	p.ifs = append(p.ifs, one)
	return one.Index, p.engine.SetInterfaces(p.ifs)
}

// Rule returns the text of the rule that decided, or "".
func (s *Summary) Rule(v firewall.Verdict) string {
	if v.Rule == 0 || int(v.Slot) >= len(s.Texts) {
		return ""
	}
	return s.Texts[v.Slot]
}
