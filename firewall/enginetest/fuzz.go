package enginetest

import (
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
)

// Fuzz is the body of an engine's fuzz target: a random case into which packets are put that the
// fuzzer makes, read as length and bytes in turn.
func Fuzz(f *testing.F, options firewall.Options, have program.Features,
	newSubject func(firewall.Options) (Subject, error)) {
	f.Fuzz(func(t *testing.T, seed uint64, b []byte) {
		c := RandomCase(seed, have, options, 60)
		for at := 5; len(b) > 0 && at < len(c.Steps); at += 7 {
			n := min(int(b[0]), len(b)-1)
			s := Step{Kind: StepPacket, Packet: b[1 : 1+n],
				Input: firewall.Input{Hook: firewall.Hook{Recv: 2}}}
			b = b[1+n:]
			if before := c.Steps[at-1]; before.Kind == StepPacket {
				s.Input = before.Input
				c.Steps = append(c.Steps[:at], append([]Step{s}, c.Steps[at:]...)...)
			}
		}
		d, err := c.Run(options, newSubject)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d != nil {
			t.Fatal(d.Shrink(options, newSubject, 5*time.Second))
		}
	})
}
