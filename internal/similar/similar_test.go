package similar

import "testing"

// TestWord: a slip of the finger is undone, and what is far from every word has no suggestion.
func TestWord(t *testing.T) {
	for _, c := range []struct{ t, want string }{{"range", "ranges"}, {"rnages", "ranges"},
		{"publihs", "publish"}, {"link", "link"}, {"addresses", ""}, {"", ""}} {
		if got := Word(c.t, "ranges", "publish", "link"); got != c.want {
			t.Errorf("%q: %q, want %q", c.t, got, c.want)
		}
	}
}
