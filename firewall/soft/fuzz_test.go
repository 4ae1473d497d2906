package soft

import (
	"testing"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/program"
)

// FuzzEvaluate compares the engine with the model on packets that the fuzzer makes, among those of
// a random case.
func FuzzEvaluate(f *testing.F) {
	for seed := range uint64(4) {
		one := append([]byte{40}, udp(f, "10.0.0.1:53", "10.0.0.2:4000")...)
		two := append([]byte{80}, tcp(f, "[2001:db8::1]:80", "[2001:db8::2]:4000", 2, 1, 0)...)
		f.Add(seed, append(one, two...))
	}
	enginetest.Fuzz(f, testOptions(), program.AllFeatures, subjects(0, byFirst))
}
