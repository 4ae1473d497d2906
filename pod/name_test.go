package pod

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// TestValidName compares validName with the regular expressions that it stands for.
func TestValidName(t *testing.T) {
	forms := map[string]*regexp.Regexp{
		"":  regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$`),
		"/": regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,14}$`),
	}
	names := []string{"", "a", "-", "a-", ".a", "a\n", "a/b", "/a", "\xff", "a\u00e4", "a b",
		strings.Repeat("x", 15), strings.Repeat("x", 16), "pod:x", "a\x00"}
	random := rand.New(rand.NewPCG(1, 2))
	const some = "azAZ09_.-/:@[`{ "
	for range 2000 {
		b := make([]byte, random.IntN(18))
		for i := range b {
			b[i] = some[random.IntN(len(some))]
			if random.IntN(3) > 0 {
				b[i] = some[random.IntN(9)]
			}
		}
		names = append(names, string(b))
	}
	for others, form := range forms {
		valid := 0
		for _, name := range names {
			want := form.MatchString(name)
			if want {
				valid++
			}
			if got := validName(name, others, 15); got != want {
				t.Errorf("validName(%q, %q, 15) is %v", name, others, got)
			}
		}
		if valid < 100 || valid > len(names)-100 {
			t.Errorf("%d of %d names are valid: the test compares little", valid, len(names))
		}
	}
}
