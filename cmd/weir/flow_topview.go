package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/observe"
)

// topView is the order, the filter and the mode of the table.
type topView struct {
	sort   string
	word   string // rows without it are left out
	typing bool   // the word is being typed
	paused bool
	names  *observe.NameCache // of addresses by DNS; nil without --names
}

// sortKeys are the orders of talkers, the largest first.
var sortKeys = map[string]func(a, b api.Talker) int{
	"rate":    func(a, b api.Talker) int { return cmp.Compare(b.Rate, a.Rate) },
	"bytes":   func(a, b api.Talker) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"packets": func(a, b api.Talker) int { return cmp.Compare(b.Packets, a.Packets) },
	"states":  func(a, b api.Talker) int { return cmp.Compare(b.States, a.States) },
}

// key handles a key and reports whether it ends the view.
func (v *topView) key(k byte) (quit bool) {
	const escape, enter, interrupt, backspace, delete = 0x1b, '\r', 3, 8, 0x7f
	if v.typing {
		switch {
		case k == enter || k == '\n':
			v.typing = false
		case k == escape || k == interrupt:
			v.typing, v.word = false, ""
		case (k == backspace || k == delete) && v.word != "":
			v.word = v.word[:len(v.word)-1]
		case k > ' ' && k <= '~':
			v.word += string(rune(k))
		}
		return false
	}
	switch k {
	case 'q', interrupt:
		return true
	case ' ':
		v.paused = !v.paused
	case '/':
		v.typing, v.word = true, ""
	case 'r':
		v.sort = "rate"
	case 'b':
		v.sort = "bytes"
	case 'p':
		v.sort = "packets"
	case 's':
		v.sort = "states"
	}
	return false
}

// frame is one screen: lines are cut at its width and end in "erase to the right"; the end of the
// screen is erased.
func (v *topView) frame(a *api.Top, screen *os.File, rows int) string {
	width, height, err := term.GetSize(int(screen.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	if rows == 0 {
		rows = max(1, (height-7)/2)
	}
	var text bytes.Buffer
	v.show(&text, a, width, rows)
	mode := fmt.Sprintf("sort %s", v.sort)
	if v.paused {
		mode += ", PAUSED"
	}
	fmt.Fprintf(&text, "\n%s | keys: r b p s sort, / filter, space pause, q quit", mode)
	if v.typing {
		fmt.Fprintf(&text, "\nfilter: %s_", v.word)
	}
	var out strings.Builder
	out.WriteString("\x1b[H")
	for i, line := range strings.Split(text.String(), "\n") {
		if i == height {
			break
		}
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(cut(line, width) + "\x1b[K")
	}
	return out.String() + "\x1b[J"
}

// show writes both tables in at most width columns.
func (v *topView) show(w io.Writer, a *api.Top, width, rows int) {
	fmt.Fprintln(w, cut(fmt.Sprintf("states %d of %d (%d half-open)  refused %d packets  events "+
		"lost %d", a.States, a.StatesMax, a.HalfOpen,
		a.Refused.Packets, a.Lost), width))
	ends := max(11, (width-38)/2)
	fmt.Fprintf(w, "\n%-5s %-*s %-*s %6s %9s %9s\n", "TALK", ends, "FROM", ends, "TO", "STATES",
		"BYTES", "RATE/s")
	talkers := slices.Clone(a.Talkers)
	slices.SortStableFunc(talkers, sortKeys[v.sort])
	left := rows
	for _, t := range talkers {
		from, to := v.label(t.Src, t.SrcName, 0), v.label(t.Dst, t.DstName, t.Port)
		if left == 0 || !v.matches(t.Proto, from, to) {
			continue
		}
		left--
		fmt.Fprintf(w, "%-5s %-*s %-*s %6s %9s %9s\n", t.Proto, ends, cut(from, ends), ends,
			cut(to, ends), multiple(float64(t.States)),
			multiple(float64(t.Bytes)), multiple(t.Rate))
	}
	fmt.Fprintf(w, "\n%-5s %-*s %-*s %6s %-10s %8s\n", "DENY", ends, "FROM", ends, "TO", "RULE",
		"REASON", "PACKETS")
	left = rows
	for _, r := range a.Refusals {
		from, to := v.label(r.Src, r.SrcName, 0), v.label(r.Dst, r.DstName, r.Port)
		if left == 0 || !v.matches(r.Proto, from, to, r.Reason, fmt.Sprint(r.Rule)) {
			continue
		}
		left--
		fmt.Fprintf(w, "%-5s %-*s %-*s %6d %-10s %8d\n", r.Proto, ends, cut(from, ends), ends,
			cut(to, ends), r.Rule, cut(r.Reason, 10), r.Packets)
	}
	if a.Others.Packets > 0 && v.word == "" {
		fmt.Fprintf(w, "%-5s %-*s %8d\n", "", 2*ends+19, "others", a.Others.Packets)
	}
}

func (v *topView) matches(cells ...string) bool {
	return v.word == "" || slices.ContainsFunc(cells, func(c string) bool {
		return strings.Contains(c, v.word)
	})
}

// label is one end: its name if it has one, else its address, and its port. It is escaped.
func (v *topView) label(addr, name string, port uint16) string {
	if name == "" && v.names != nil {
		if a, err := netip.ParseAddr(addr); err == nil {
			name = v.names.Name(a)
		}
	}
	text := addr
	switch {
	case name != "":
		text = tty.Escape(name)
	case addr == "":
		text = "?"
	}
	if port == 0 {
		return text
	}
	return net.JoinHostPort(text, fmt.Sprint(port))
}

// cut shortens a text to a width; a "~" shows that something is missing.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(0, width-1)]) + "~"
}

// multiple writes a number in at most six characters with a decimal multiple.
func multiple(v float64) string {
	for _, unit := range []string{"", "k", "M", "G", "T"} {
		switch {
		case unit == "" && v < 10000:
			return fmt.Sprintf("%.0f", v)
		case v < 1000:
			return fmt.Sprintf("%.1f%s", v, unit)
		}
		v /= 1000
	}
	return fmt.Sprintf("%.0fP", v)
}
