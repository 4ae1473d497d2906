package enginetest

import (
	"testing"

	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// Compile compiles the text of a rule file, which has to be right.
func Compile(t testing.TB, text string, o rule.CompileOptions) *rule.Program {
	t.Helper()
	set, err := rule.ParseFile("rules", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rule.Compile(set, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Packet builds a packet of layers that fit together.
func Packet(t testing.TB, layers ...build.Layer) []byte {
	t.Helper()
	b, err := build.Packet(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
