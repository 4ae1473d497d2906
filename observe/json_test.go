package observe

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/weirnet/weir/firewall"
)

// TestJSONRoundTrip: what is written is read back the same, each line is one JSON value in plain
// ASCII.
func TestJSONRoundTrip(t *testing.T) {
	g := newRandom(t)
	for range 5000 {
		e := g.event()
		text := e.AppendJSON(nil)
		if bytes.IndexByte(text, '\n') != len(text)-1 {
			t.Fatalf("not one line: %q", text)
		}
		for _, c := range text[:len(text)-1] {
			if c < ' ' || c > '~' {
				t.Fatalf("%#x in %q", c, text)
			}
		}
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		got, err := ParseEvent(text)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if got != e {
			t.Fatalf("got  %+v\nwant %+v\nfrom %s", got, e, text)
		}
	}
}

func TestGapRoundTrip(t *testing.T) {
	e := Event{Lost: 17}
	text := string(e.AppendJSON(nil))
	if !strings.Contains(text, `"kind":"lost","lost":17`) {
		t.Errorf("%s", text)
	}
	got, err := ParseEvent([]byte(text))
	if err != nil || got != e {
		t.Errorf("%+v %v", got, err)
	}
}

// TestOldNameOfICMPv6: journals and captures of events from before hold icmp6.
func TestOldNameOfICMPv6(t *testing.T) {
	const text = `{"version":1,"kind":"drop","reason":"rule","proto":"icmp6"}`
	e, err := ParseEvent([]byte(text))
	if err != nil || !strings.Contains(string(e.AppendJSON(nil)), `"proto":"ipv6-icmp"`) {
		t.Errorf("read as %s: %v", e.AppendJSON(nil), err)
	}
}

func TestBadLinesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                             "event:",
		`[]`:                           "event:",
		`{"version":2,"kind":"start"}`: "version 2",
		`{"version":1,"kind":"party"}`: `"party"`,
		`{"version":1,"kind":"drop","reason":"mood"}`:                                               `"mood"`,
		`{"version":1,"kind":"drop","reason":"rule","proto":"x"}`:                                   `"x"`,
		`{"version":1,"kind":"drop","reason":"rule","proto":"tcp","src":"1.2.3"}`:                   "1.2.3",
		`{"version":1,"kind":"drop","reason":"rule","proto":"udp","src":"fe80::1%\u001b]0;x"}`:      "a zone",
		`{"version":1,"kind":"drop","reason":"rule","proto":"tcp","flags":"SQ"}`:                    "'Q'",
		"{\"version\":1,\"kind\":\"drop\",\"reason\":\"rule\",\"proto\":\"tcp\",\"recv\":\"\xff\"}": "not text",
	} {
		if _, err := ParseEvent([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestHostileNamesDoNotReachTheTerminal: a line for a person has no control characters for a
// terminal.
func TestHostileNamesDoNotReachTheTerminal(t *testing.T) {
	e := Event{Recv: "eth\x1b[2J", Xmit: "\u202e", From: "a\nb", To: "\u009b31m",
		Service: "\x1b]0;x"}
	e.Kind, e.Proto = firewall.EventDrop, 6
	for _, r := range e.Text() {
		if r < ' ' || r > '~' {
			t.Errorf("%U in %q", r, e.Text())
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"version":1,"kind":"drop","reason":"rule","proto":"udp","src":"fe80::1%\"\n"}`))
	g := random{newRandom(f).Rand}
	for range 20 {
		e := g.event()
		f.Add(e.AppendJSON(nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		again, err := ParseEvent(e.AppendJSON(nil))
		if err != nil {
			t.Fatalf("%s gives %s, which is refused: %v", text, e.AppendJSON(nil), err)
		}
		if string(again.AppendJSON(nil)) != string(e.AppendJSON(nil)) {
			t.Fatalf("%s becomes %s", e.AppendJSON(nil), again.AppendJSON(nil))
		}
		if strings.ContainsFunc(e.Text(), unicode.IsControl) {
			t.Fatalf("%q controls the terminal", e.Text())
		}
		for _, r := range strings.TrimSuffix(string(e.AppendJSON(nil)), "\n") {
			if r < ' ' || r > '~' {
				t.Fatalf("%q is not one line of ASCII", e.AppendJSON(nil))
			}
		}
	})
}
