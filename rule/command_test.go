package rule

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/rule/op"
)

// TestMostRules: a line that would add one rule too many is refused, and changes nothing.
func TestMostRules(t *testing.T) {
	c, err := ParseLine("add 5 count ip from any to any", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Ruleset{Rules: make([]*Rule, maxHeld-1)}
	for i := range s.Rules {
		s.Rules[i] = &Rule{Number: 10, Action: Action{Op: op.ActionCount}}
	}
	if err := c.Apply(s); err != nil || len(s.Rules) != maxHeld {
		t.Errorf("the last rule: %v, %d rules", err, len(s.Rules))
	}
	if err := c.Apply(s); err == nil || !strings.Contains(err.Error(), "65536 rules") ||
		len(s.Rules) != maxHeld {
		t.Errorf("one more: %v, %d rules", err, len(s.Rules))
	}
}

// TestLongLine reads a line in one pass. If each "!" searches the rest of the line, it takes longer
// than a test may.
func TestLongLine(t *testing.T) {
	l := scan("", 1, strings.Repeat("! ", 1<<20), nil)
	if len(l.words) != 1<<20 || l.words[0].text != "!" {
		t.Errorf("%d words, the first %q", len(l.words), l.words[0].text)
	}
	for text, want := range map[string]string{
		"!{ !( !x !":                   "!|{|!|(|!x|!",
		"table( a , 5 ) a{ 1, 2 ,3 }":  "table(a,5)|a{1,2,3}",
		"table(a b) a{1 2}":            "table(a|b|)|a{1|2|}",
		"{ a{1, 2} or table(b ) } x,y": "{|a{1,2}|or|table(b)|}|x,y",
	} {
		var words []string
		for _, w := range scan("", 1, text, nil).words {
			words = append(words, w.text)
		}
		if got := strings.Join(words, "|"); got != want {
			t.Errorf("%s: words %s, want %s", text, got, want)
		}
	}
}
