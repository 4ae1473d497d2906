package kernel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestFlowNamesOfTwoPrograms: rules that have too many flow names beside those in force are refused
// with what to do, and leave nothing behind: others have space as before.
func TestFlowNamesOfTwoPrograms(t *testing.T) {
	names := func(name string, n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "add allow udp from any to any %d keep-state :%s%d\n", i+1, name, i)
		}
		return text.String()
	}
	e := newEngine(t)
	for _, step := range []struct{ rules, want string }{
		{names("a", 200), ""},
		{names("b", 55), "55 flow names, and those in force 200 others"},
		{names("a", 10) + names("c", 200), "210 flow names, and those in force 190 others"},
		{names("a", 200) + names("d", 54), ""},
		{names("a", 200), ""},
		{names("b", 54), ""},
		{names("a", 200), ""},
	} {
		err := e.Load(compile(t, step.rules))
		if (err == nil) != (step.want == "") ||
			err != nil && !strings.Contains(err.Error(), step.want) {
			t.Fatalf("%v, want %q", err, step.want)
		}
		var hint interface{ Hint() string }
		if err != nil && !errors.As(err, &hint) {
			t.Errorf("no hint: %v", err)
		}
	}
}
