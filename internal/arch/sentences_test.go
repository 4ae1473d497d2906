package arch

import (
	"strings"
	"testing"
)

func TestSentences(t *testing.T) {
	found, err := Sentences(root)
	complain(t, found, err)
}

func TestLongSentences(t *testing.T) {
	const ten = "one two three four five six seven eight nine ten"
	for _, c := range []struct {
		what, code string
		found      int
	}{
		{"thirty words", "// " + ten + "\n// " + ten + "\n// " + ten + ".\n", 0},
		{"thirty-one", "x()\n\t// " + ten + "\n\t// " + ten + " (" + ten + ") more.\ny()\n", 1},
		{"two sentences", "// " + ten + " " + ten + ". " + ten + " " + ten + ".\n", 0},
		{"a list", "// " + ten + ": " + ten + " a; " + ten + " b.\n", 0},
		{"two paragraphs", "// " + ten + " " + ten + "\n//\n// " + ten + " " + ten + "\n", 0},
		{"two comments", "// " + ten + " " + ten + "\nx()\n// " + ten + " " + ten + "\n", 0},
		{"indented", "// words:\n//\n//\t" + strings.Repeat(ten+" ", 4) + "\n", 0},
		{"a directive", "//go:generate " + strings.Repeat(ten+" ", 4) + "\n", 0},
		{"a string", `s := "` + strings.Repeat(ten+" ", 4) + "\"\n", 0},
		{"a dot in a name", "// " + ten + " a.b " + ten + " " + ten + "\n", 1},
	} {
		if got := longSentences(c.code); len(got) != c.found {
			t.Errorf("%s: found %q", c.what, got)
		}
	}
}
