package kernel

import (
	"encoding/binary"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

// subject is an engine as the conformance suite needs it. It is emptied instead of closed, since
// loading programs takes longer than a case.
type subject struct {
	*Engine
	at   int64
	hand uint32 // the set at which the next tick begins
}

func (s *subject) Evaluate(in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
	s.at = int64(in.Now)
	return s.Engine.Evaluate(in, pkt)
}

func (s *subject) Sweep(now time.Duration) error {
	s.at = int64(now)
	return s.call.ask(&weirCall{Op: opSweep, Now: int64(now), Count: s.config.Sets})
}

// Tick sweeps a few sets, as the timer does, which no test waits for.
func (s *subject) Tick(now time.Duration) error {
	s.at = int64(now)
	few := (s.config.Sets + 255) / 256
	if s.hand >= s.config.Sets {
		s.hand = 0
	}
	s.hand += few
	return s.call.ask(&weirCall{Op: opSweep, Now: int64(now), Place: s.hand - few, Count: few})
}

// States lists expired states too, which the engine does not list, as long as no sweep has come by:
// they still count for their sources and limits.
func (s *subject) States() iter.Seq2[firewall.State, error] {
	return func(yield func(firewall.State, error) bool) {
		at := s.at
		s.at = 0
		defer func() { s.at = at }()
		s.Engine.States()(yield)
	}
}

// Tracks returns those that count something. A track that is given to another tuple gets another
// era.
func (s *subject) Tracks() (map[enginetest.Track]uint64, error) {
	keys := map[uint32]uint64{}
	for key, id := range s.ids.byKey {
		keys[id] = key
	}
	all := map[enginetest.Track]uint64{}
	var set weirTrackSet
	for n := range s.config.TrackSets {
		if err := s.objects.Tracks.Lookup(n, &set); err != nil {
			return nil, err
		}
		for way := range set.Track {
			t := &set.Track[way]
			if set.Tag[way]&tagMask != tagLive || trackCount(t.Held) == 0 {
				continue
			}
			by := enginetest.Track{Rule: keys[t.By.Rule], Proto: packet.Proto(t.By.Proto),
				Ports: t.By.Ports}
			if t.By.SrcHi>>48 == 0xfe80 { // source_hi
				by.Link = uint32(t.By.SrcHi)
				t.By.SrcHi = 0xfe80 << 48
			}
			binary.BigEndian.PutUint64(by.Src[:8], t.By.SrcHi)
			binary.BigEndian.PutUint64(by.Src[8:], t.By.SrcLo)
			binary.BigEndian.PutUint64(by.Dst[:8], t.By.DstHi)
			binary.BigEndian.PutUint64(by.Dst[8:], t.By.DstLo)
			all[by] = uint64(n*ways+uint32(way)+1)<<32 | uint64(t.Era)
		}
	}
	return all, nil
}

func (s *subject) Close() error { return s.empty() }

// empty makes the engine as new. No packet is on its way in a test.
func (e *Engine) empty() error {
	for _, m := range []*ebpf.Map{e.objects.States, e.objects.Tags, e.objects.Tracks,
		e.objects.Gauges, e.objects.Sources, e.objects.Rates} {
		cachedVerdicts, err := m.Memory()
		if err != nil {
			return err
		}
		if _, err := cachedVerdicts.WriteAt(make([]byte, cachedVerdicts.Size()), 0); err != nil {
			return err
		}
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	for _, m := range []*ebpf.Map{e.objects.Cpus, e.objects.CallCpus} {
		if err := m.Put(uint32(0), make([]weirCpu, cpus)); err != nil {
			return err
		}
	}
	for index, used := range e.ids.incarnation {
		if used == 0 {
			continue
		}
		// A case begins before the one that was played last: no time of that may stay.
		if err := e.objects.Counters.Put(uint32(index), make([]weirCounter, cpus)); err != nil {
			return err
		}
	}
	for name, m := range e.tables {
		if err := e.objects.Tables.Delete(e.nameIDs.ids[nameTable][name]); err != nil {
			return err
		}
		m.Close()
		delete(e.tables, name)
	}
	for _, kind := range []uint32{nameTable, nameFlow} {
		if err := e.nameIDs.drop(kind, func(name string) bool {
			return kind == nameFlow && name == "default"
		}); err != nil {
			return err
		}
	}
	e.ids, e.prog, e.rules = newIDs(), nil, nil
	if err := e.SetRoutes(nil); err != nil {
		return err
	}
	return e.SetInterfaces(nil)
}

// expedited is the kernel's setting that makes its waiting for packets on their way short. Tests
// that run side by side share it: the last one puts back what there was.
var expedited struct {
	sync.Mutex
	users int    // guarded by Mutex
	old   []byte // guarded by Mutex; what there was before the first user
}

const expeditedPath = "/sys/kernel/rcu_expedited"

// shortenTimers makes the kernel's waiting for packets on their way short, for a test that changes
// rules thousands of times.
func shortenTimers(t *testing.T) {
	expedited.Lock()
	defer expedited.Unlock()
	if expedited.users == 0 {
		old, err := os.ReadFile(expeditedPath)
		if err == nil {
			err = os.WriteFile(expeditedPath, []byte("1"), 0)
		}
		if err != nil {
			return // some kernels have no such setting: the test takes longer
		}
		expedited.old = old
	}
	expedited.users++
	t.Cleanup(func() {
		expedited.Lock()
		defer expedited.Unlock()
		if expedited.users--; expedited.users > 0 {
			return
		}
		if err := os.WriteFile(expeditedPath, expedited.old, 0); err != nil {
			t.Errorf("put back %s: %v", expeditedPath, err)
		}
	})
}

// trial opens an engine and returns what the conformance suite needs of it.
func trial(t *testing.T) (firewall.Options, func(firewall.Options) (enginetest.Subject, error)) {
	nstest.RequireRoot(t)
	shortenTimers(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxTracks = 4096, 4096, 4096
	e := newEngineWith(t, o)
	s := &subject{Engine: e}
	e.clock = func() int64 { return s.at }
	return o, func(o firewall.Options) (enginetest.Subject, error) {
		e.config.limitSources(o.MaxPerSource)
		e.config.Liberal, e.config.MaxHalfOpen = bit(o.Liberal), uint32(o.MaxHalfOpen)
		e.config.NoDhcp = bit(o.NoDHCP)
		e.config.TrackSets = uint32(o.MaxTracks) / ways
		return s, e.putConfigLocked()
	}
}

func TestDiffer(t *testing.T) {
	t.Parallel()
	o, fresh := trial(t)
	enginetest.Run(t, o, program.AllFeatures, fresh)
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	o, fresh := trial(t)
	enginetest.RunTruncated(t, o, fresh)
}

// TestLongCoverage plays the cases that leave no part of the language out. TestCoverage of package
// soft makes sure that the generators make them.
func TestLongCoverage(t *testing.T) {
	o, fresh := trial(t)
	enginetest.RunCoverage(t, o, fresh)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	o, fresh := trial(t)
	enginetest.RunKeys(t, o, fresh)
}
