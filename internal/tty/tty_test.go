package tty

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"eth0":                      "eth0",
		"":                          "",
		"a b":                       "a b",
		"Zürich 日本":                 "Zürich 日本",
		"a\x1b[2Jb":                 `a\x1b[2Jb`,
		"a\nb\tc\rd":                `a\nb\tc\rd`,
		`a\nb`:                      `a\\nb`,
		"\x00\x7f":                  `\x00\x7f`,
		"\u009b31m":                 `\u009b31m`, // the one-byte CSI
		"\xff\xfe":                  `\xff\xfe`,
		"evil\u202etxt.exe":         `evil\u202etxt.exe`,
		"zero\u200bwidth":           `zero\u200bwidth`,
		"line\u2028sep":             `line\u2028sep`,
		"tag\U000e0041":             `tag\U000e0041`,
		"nbsp\u00a0":                `nbsp\u00a0`,
		"replacement \ufffd itself": "replacement \ufffd itself",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[2J\u202e\\x")
	f.Fuzz(func(t *testing.T, s string) {
		got := Escape(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q gives invalid text %q", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Fatalf("%q gives %q with %U in it", s, got, r)
			}
		}
		// Unambiguous: what has no backslash in it was not escaped at all.
		if !strings.Contains(got, `\`) && got != s {
			t.Fatalf("%q changed to %q without a trace", s, got)
		}
	})
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	tab := NewTable(&b, false, "NAME", ">PACKETS", "RULE")
	tab.Row("eth0", 5, "allow")
	tab.Row("evil\nname", 12345, Styled{"deny", Red})
	tab.Row("", 0, "")
	if err := tab.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"NAME        PACKETS  RULE\n" +
		"eth0              5  allow\n" +
		"evil\\nname    12345  deny\n" +
		"-                 0  -\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestTableColorsDoNotMoveColumns(t *testing.T) {
	paint := func(color bool) string {
		var b bytes.Buffer
		tab := NewTable(&b, color, "A", "B")
		tab.Row(Styled{"x", Green}, "y")
		tab.Row("xxxx", "y")
		if err := tab.Flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	colored := paint(true)
	if !strings.Contains(colored, "\x1b[32mx\x1b[0m") {
		t.Errorf("no green in %q", colored)
	}
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[32m"} {
		colored = strings.ReplaceAll(colored, code, "")
	}
	if colored != paint(false) {
		t.Errorf("with the codes taken out: %q, without colour: %q", colored, paint(false))
	}
}

func TestColorIsOnlyForTerminalsThatWantIt(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, map[string]string{"TERM": "xterm"}, true},
		{false, map[string]string{"TERM": "xterm"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
		{true, map[string]string{}, false},
		{true, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
	} {
		if got := colorWanted(c.terminal, func(k string) string {
			return c.env[k]
		}); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if IsTerminal(f) || IsTerminal(&bytes.Buffer{}) || Width(f) != 80 ||
		Width(&bytes.Buffer{}) != 80 {
		t.Error("a file or a buffer was taken for a terminal")
	}
}

// TestATerminalIsOne opens a real pseudo-terminal.
func TestATerminalIsOne(t *testing.T) {
	ptm, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer ptm.Close()
	if !IsTerminal(ptm) {
		t.Error("a pseudo-terminal was not taken for a terminal")
	}
	if !WantsColor(ptm, func(k string) string { return map[string]string{"TERM": "xterm"}[k] }) {
		t.Error("a terminal got no colour")
	}
}
