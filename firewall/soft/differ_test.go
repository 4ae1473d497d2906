package soft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/program"
)

// subject is the engine as the conformance suite wants it.
type subject struct {
	*Engine
	evaluate evaluateFunc
}

// evaluateFunc is a way in which an engine is handed a packet.
type evaluateFunc func(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error)

// byFirst has the first worker evaluate every packet.
func byFirst(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
	return e.Worker(0).Evaluate(in, pkt), nil
}

// bySteered has the worker of the packet's flow evaluate it.
func bySteered(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
	return e.Worker(e.Steer(pkt)).Evaluate(in, pkt), nil
}

// subjects makes engines of so many workers for the conformance suite.
func subjects(workers int, evaluate evaluateFunc) func(firewall.Options) (enginetest.Subject,
	error) {
	return func(o firewall.Options) (enginetest.Subject, error) {
		e, err := New(Options{Options: o, Workers: workers})
		return subject{e, evaluate}, err
	}
}

func (s subject) Evaluate(in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
	return s.evaluate(s.Engine, in, pkt)
}

func (s subject) Sweep(now time.Duration) error {
	s.Engine.Sweep(now)
	return nil
}

// Tick lets every worker tick. What it would send is for other tests.
func (s subject) Tick(now time.Duration) error {
	for _, w := range s.workers {
		w.Tick(now, func(Probe) {})
	}
	return nil
}

// Tracks returns those that count something.
func (s subject) Tracks() (map[enginetest.Track]uint64, error) {
	keys := map[uint32]uint64{}
	for key, id := range s.ids {
		keys[id] = key
	}
	all := map[enginetest.Track]uint64{}
	for k, i := range s.tracks.index {
		if held := s.tracks.all[i].held.Load(); countOf(held) > 0 {
			t := enginetest.Track{Rule: keys[k.rule], Proto: k.proto, Src: k.src, Dst: k.dst,
				Ports: k.ports}
			if netip.AddrFrom16(t.Src).IsLinkLocalUnicast() && t.Src[0] == 0xfe { // sourceOf
				t.Link = binary.LittleEndian.Uint32(t.Src[8:])
				clear(t.Src[8:])
			}
			all[t] = uint64(i+1)<<16 | uint64(eraOf(held))
		}
	}
	return all, nil
}

// testOptions returns options with space for every state of a random case.
func testOptions() firewall.Options {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxTracks = 4096, 4096, 4096
	return o
}

func TestTruncated(t *testing.T) {
	enginetest.RunTruncated(t, testOptions(), subjects(1, byFirst))
}

// TestDiffer compares the engine with the model, in every way in which packets can be handed to it.
func TestDiffer(t *testing.T) {
	turn := 0
	ways := []struct {
		name     string
		workers  int
		evaluate evaluateFunc
	}{
		{"one worker", 1, byFirst},
		{"batches of three workers, none of them the right one", 3,
			func(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
				var out [1]firewall.Verdict
				turn++
				e.Worker(turn%3).EvaluateBatch(in, [][]byte{pkt}, out[:])
				return out[0], nil
			}},
		{"two workers, each packet for the right one", 2, bySteered},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			enginetest.Run(t, testOptions(), program.AllFeatures,
				subjects(way.workers, way.evaluate))
		})
	}
}

// explained is a subject whose explanations are compared, too.
type explained struct{ subject }

func (s explained) Explain(in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
	ex := s.Engine.Explain(in, pkt)
	v, n := ex.Verdict, len(ex.Tries)
	if v.Rule != 0 && v.Reason == firewall.ReasonRule &&
		(n == 0 || ex.Tries[n-1].Number != v.Rule) {
		return v, fmt.Errorf("verdict %+v, tries %+v", v, ex.Tries)
	}
	return v, nil
}

// TestExplainDiffer compares the verdict of Explain for each packet, in any state of the engine,
// with a model in which nothing gives way, which is what page 0003 promises. Then the packet is
// evaluated.
func TestExplainDiffer(t *testing.T) {
	enginetest.Run(t, testOptions(), program.AllFeatures,
		func(o firewall.Options) (enginetest.Subject, error) {
			e, err := New(Options{Options: o, Workers: 2})
			return explained{subject{e, bySteered}}, err
		})
}

// TestCoverage makes sure that TestDiffer leaves no part of the language out.
func TestCoverage(t *testing.T) {
	enginetest.RunCoverage(t, testOptions(), subjects(1, byFirst))
}

func TestKeys(t *testing.T) {
	for _, workers := range []int{1, 3} {
		turn := 0
		enginetest.RunKeys(t, testOptions(), subjects(workers, func(e *Engine, in *firewall.Input,
			pkt []byte) (firewall.Verdict, error) {
			turn++
			return e.Worker(turn%workers).Evaluate(in, pkt), nil
		}))
	}
}
