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
		// Text without a backslash was not escaped at all.
		if !strings.Contains(got, `\`) && got != s {
			t.Fatalf("%q changed to %q without a trace", s, got)
		}
	})
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	tab := NewTable(&b, "NAME", ">PACKETS", "RULE")
	tab.Row("eth0", 5, "allow")
	tab.Row("evil\nname", 12345, "deny")
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

func TestAFileIsNotATerminal(t *testing.T) {
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

// TestPseudoTerminal opens a real pseudo-terminal.
func TestPseudoTerminal(t *testing.T) {
	ptm, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer ptm.Close()
	if !IsTerminal(ptm) {
		t.Error("a pseudo-terminal was not taken for a terminal")
	}
}
