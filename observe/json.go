package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// Version is the version of the JSON form; fields are only ever added.
const Version = 1

// AppendJSON appends the event as one line of JSON with its newline. Everything that is not
// printable ASCII is escaped, so that a line cannot control a terminal.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"version":1,"time":"`...)
	b = e.At.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","kind":"`...)
	b = append(b, KindName(e.Kind)...)
	b = append(b, '"')
	if e.Lost != 0 {
		b = strconv.AppendUint(append(b, `,"lost":`...), e.Lost, 10)
	}
	if e.Kind == 0 {
		return append(b, "}\n"...)
	}
	if e.Kind != firewall.EventLog { // a rule that logs may decide nothing
		verdict := "drop"
		if e.Verdict.Pass {
			verdict = "pass"
		}
		b = append(append(append(b, `,"verdict":"`...), verdict...), '"')
	}
	b = strconv.AppendUint(append(b, `,"rule":`...), uint64(e.Verdict.Rule), 10)
	b = append(append(append(b, `,"reason":"`...), e.Verdict.Reason.String()...), '"')
	b = append(append(append(b, `,"hook":"`...), e.Hook.Dir.String()...), '"')
	b = appendName(b, `,"recv":`, e.Recv)
	b = appendName(b, `,"xmit":`, e.Xmit)
	b = append(append(append(b, `,"proto":"`...), e.Proto.String()...), '"')
	b = appendEnd(b, "src", e.Src)
	b = appendEnd(b, "dst", e.Dst)
	b = appendName(b, `,"src_name":`, e.From)
	b = appendName(b, `,"dst_name":`, e.To)
	b = appendName(b, `,"service":`, e.Service)
	if e.TCPFlags != 0 {
		b = append(append(append(b, `,"flags":"`...), FlagText(e.TCPFlags)...), '"')
	}
	if e.Length != 0 {
		b = strconv.AppendUint(append(b, `,"length":`...), uint64(e.Length), 10)
	}
	if e.Kind == firewall.EventEnd {
		b = appendPair(b, `,"packets":`, e.Packets)
		b = appendPair(b, `,"bytes":`, e.Bytes)
		b = strconv.AppendFloat(append(b, `,"duration_seconds":`...), float64(e.Duration)/1e9, 'f',
			-1, 64)
	}
	return append(b, "}\n"...)
}

func appendPair(b []byte, key string, v [2]uint64) []byte {
	b = strconv.AppendUint(append(append(b, key...), '['), v[0], 10)
	return append(strconv.AppendUint(append(b, ','), v[1], 10), ']')
}

// appendEnd writes an address and, if there is one, a port.
func appendEnd(b []byte, side string, a netip.AddrPort) []byte {
	if !a.Addr().IsValid() {
		return b
	}
	b = append(append(append(b, `,"`...), side...), `":"`...)
	b = append(a.Addr().AppendTo(b), '"')
	if a.Port() != 0 {
		b = append(append(append(b, `,"`...), side...), `_port":`...)
		b = strconv.AppendUint(b, uint64(a.Port()), 10)
	}
	return b
}

// appendName writes a string from outside, in ASCII.
func appendName(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	b = append(append(b, key...), '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r <= '~' && r != '<' && r != '>' && r != '&':
			b = append(b, byte(r))
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		}
	}
	return append(b, '"')
}

// line is the JSON form, for reading.
type line struct {
	Version  int       `json:"version"`
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Lost     uint64    `json:"lost"`
	Verdict  string    `json:"verdict"`
	Rule     uint16    `json:"rule"`
	Reason   string    `json:"reason"`
	Hook     string    `json:"hook"`
	Recv     string    `json:"recv"`
	Xmit     string    `json:"xmit"`
	Proto    string    `json:"proto"`
	Src      string    `json:"src"`
	SrcPort  uint16    `json:"src_port"`
	Dst      string    `json:"dst"`
	DstPort  uint16    `json:"dst_port"`
	SrcName  string    `json:"src_name"`
	DstName  string    `json:"dst_name"`
	Service  string    `json:"service"`
	Flags    string    `json:"flags"`
	Length   uint32    `json:"length"`
	Packets  [2]uint64 `json:"packets"`
	Bytes    [2]uint64 `json:"bytes"`
	Duration float64   `json:"duration_seconds"`
}

// ParseEvent reads a line that AppendJSON wrote. It ignores unknown fields: a
// newer Weir may have written them.
func ParseEvent(text []byte) (Event, error) {
	var l line
	if !utf8.Valid(text) {
		return Event{}, fmt.Errorf("event: not text")
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return Event{}, fmt.Errorf("event: %w", err)
	}
	if l.Version != Version {
		return Event{}, fmt.Errorf("event: version %d: this Weir reads version %d", l.Version,
			Version)
	}
	kind, ok := kindOf(l.Kind)
	if !ok {
		return Event{}, fmt.Errorf("event: unknown kind %q", l.Kind)
	}
	e := Event{At: l.Time, Lost: l.Lost, Recv: l.Recv, Xmit: l.Xmit, From: l.SrcName, To: l.DstName,
		Service: l.Service}
	e.Kind = kind
	if kind == 0 {
		return e, nil
	}
	e.Time, e.Length = time.Duration(l.Time.UnixNano()), l.Length
	e.Packets, e.Bytes = l.Packets, l.Bytes
	e.Duration = time.Duration(math.Round(l.Duration * 1e9))
	e.Verdict = firewall.Verdict{Pass: l.Verdict == "pass", Rule: l.Rule}
	if e.Verdict.Reason, ok = reasonOf(l.Reason); !ok {
		return Event{}, fmt.Errorf("event: unknown reason %q", l.Reason)
	}
	if l.Hook == "out" {
		e.Hook.Dir = firewall.Out
	}
	proto, err := packet.ParseProto(l.Proto)
	if err != nil {
		return Event{}, fmt.Errorf("event: %w", err)
	}
	e.Proto = proto
	for _, r := range l.Flags {
		at := strings.IndexRune(flagLetters, r)
		if at < 0 {
			return Event{}, fmt.Errorf("event: unknown flag %q", r)
		}
		e.TCPFlags |= 1 << at
	}
	for _, end := range []struct {
		text string
		port uint16
		to   *netip.AddrPort
	}{{l.Src, l.SrcPort, &e.Src}, {l.Dst, l.DstPort, &e.Dst}} {
		if end.text == "" {
			continue
		}
		a, err := netip.ParseAddr(end.text)
		if err == nil && a.Zone() != "" { // any text, and no packet has one
			err = fmt.Errorf("address %q has a zone", end.text)
		}
		if err != nil {
			return Event{}, fmt.Errorf("event: %w", err)
		}
		*end.to = netip.AddrPortFrom(a, end.port)
	}
	return e, nil
}
