package main

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// one measures a host alone, with the checks that the simulated hosts leave out. It measures what
// the host keeps of each pod of other hosts, and what it does for a change of one, from the frame
// on. It runs when nothing follows.
func (b *bench) one(f *fleet, _ store.Store, _ int64) error {
	f.stop()
	key, err := identity.CAKey(f.ca.Certificate())
	if err != nil {
		return err
	}
	all := f.hosts[0].copy.Stored().Snapshot()
	var certs, pods []store.Change
	for _, e := range all.Entries {
		switch {
		case store.Covers(cluster.NodeTree, e.Key):
			certs = append(certs, store.Change{Entry: e})
		case store.Covers(cluster.PodsTree, e.Key):
			pods = append(pods, store.Change{Entry: e})
		}
	}
	copied := store.NewGuarded(cluster.Guard(), store.Snapshot{})
	checked := cluster.NewDesired("one", cluster.Trust{CA: []cluster.Key{cluster.Key(key)}}, nil)
	checked.Apply(certs)
	before := heap()
	for i, e := range pods { // as if it had just come
		pods[i].Value, pods[i].Key = bytes.Clone(e.Value), string([]byte(e.Key))
	}
	copied.Step(store.Batch{Revision: all.Revision, Changes: pods})
	effects := checked.Apply(pods)
	if len(effects.Claims) > 0 || len(effects.Labels) == 0 {
		return fmt.Errorf("a host refuses what others say: %v", effects.Claims)
	}
	resident := heap() - before
	heading("A host alone, with a copy, its guard and all checks")
	number := float64(len(pods) * b.podsOfHost())
	b.row("memory for each pod of another host", float64(resident)/number, 300, "B")
	for _, together := range []int{1, 64} {
		took, err := b.changes(copied, checked, together)
		if err != nil {
			return err
		}
		b.row(fmt.Sprintf("processor time for a pod that changes, %d in a batch", together),
			float64(took.Nanoseconds())/1000, 20, "us")
	}
	runtime.KeepAlive(pods)
	return nil
}

// changes returns the processor time for the change of a pod.
func (b *bench) changes(copied *store.Guarded, checked *cluster.Desired,
	together int) (time.Duration, error) {
	const rounds = 200
	var frames [][]byte
	was := map[string][]byte{} // values that a frame changes
	for e := range copied.Stored().All() {
		was[e.Key] = e.Value
	}
	for n := range rounds {
		var changes []store.Change
		for i := range together {
			e, err := b.chunk((n*together + i) % b.hosts)
			if err != nil {
				return 0, err
			}
			changes = append(changes, store.Change{Entry: e})
		}
		deltas := wire.Deltas(changes, func(key string) []byte { return was[key] })
		frames = append(frames, wire.Batches(copied.Stored().Revision+int64(n)+1, deltas))
		for _, ch := range changes {
			was[ch.Key] = ch.Value
		}
	}
	begin, err := ownCPU()
	if err != nil {
		return 0, err
	}
	changed := 0
	for _, frame := range frames {
		from := bytes.NewReader(frame)
		for from.Len() > 0 {
			_, body, err := wire.ReadFrame(from, wire.MaxFrame)
			if err != nil {
				return 0, err
			}
			m, err := wire.DecodeBatch(body)
			if err != nil {
				return 0, err
			}
			batch := store.Batch{Revision: m.Revision}
			for _, ch := range m.Changes {
				before, _ := copied.Stored().Get(ch.Key)
				change, err := ch.Of(before.Value)
				if err != nil {
					return 0, err
				}
				batch.Changes = append(batch.Changes, change)
			}
			steps := copied.Step(batch)
			changed += len(steps)
			if claims := checked.Apply(steps).Claims; len(claims) > 0 {
				return 0, &claims[0]
			}
		}
	}
	end, err := ownCPU()
	return (end - begin) / time.Duration(max(changed, 1)), err
}

// heap returns what the heap has, once connections that ended have given back what they had.
func heap() int64 {
	for before := int64(0); ; {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if now := int64(m.HeapAlloc); max(now-before, before-now) < 16<<10 {
			return now
		} else {
			before = now
		}
	}
}
