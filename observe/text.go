package observe

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/tty"
)

// TextHeader stands over the lines of Text. What follows the two ends has its name in each line.
const TextHeader = "TIME         EVENT  PROTO SOURCE -> DESTINATION"

// Text returns the event as one line for a person. Names are escaped.
func (e *Event) Text() string {
	at := e.At.Local().Format("15:04:05.000")
	if e.Kind == 0 {
		return fmt.Sprintf("%s lost   %d events: the reader was too slow", at, e.Lost)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-6s %s %s -> %s", at, KindName(e.Kind), e.Proto,
		end(e.Src, e.From, ""), end(e.Dst, e.To, e.Service))
	if e.TCPFlags != 0 && e.Kind != firewall.EventEnd {
		b.WriteString(" " + FlagText(e.TCPFlags))
	}
	b.WriteString(" " + e.Hook.Dir.String())
	if e.Recv != "" {
		b.WriteString(" recv " + tty.Escape(e.Recv))
	}
	if e.Xmit != "" {
		b.WriteString(" xmit " + tty.Escape(e.Xmit))
	}
	fmt.Fprintf(&b, " rule %d", e.Verdict.Rule)
	if e.Verdict.Reason != firewall.ReasonRule {
		b.WriteString(" reason " + e.Verdict.Reason.String())
	}
	if e.Kind == firewall.EventEnd {
		fmt.Fprintf(&b, " packets %d/%d bytes %d/%d in %v", e.Packets[0], e.Packets[1], e.Bytes[0],
			e.Bytes[1],
			time.Duration(e.Duration).Round(time.Millisecond))
	} else if e.Length != 0 {
		fmt.Fprintf(&b, " len %d", e.Length)
	}
	return b.String()
}

// end writes one end of a flow: the name in front if it has one, the service behind the port.
func end(a netip.AddrPort, name, service string) string {
	if !a.Addr().IsValid() {
		return "?"
	}
	text := a.Addr().String()
	if a.Port() != 0 {
		text = a.String()
	}
	if service != "" {
		text += "/" + tty.Escape(service)
	}
	if name == "" {
		return text
	}
	return tty.Escape(name) + "(" + text + ")"
}
