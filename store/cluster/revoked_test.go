package cluster

import (
	"encoding/binary"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestRevokedAreBounded: one who controls a store without signed rules cannot fill the memory and
// the disk of every host with the serial numbers of hosts that there never were. What is signed
// counts.
func TestRevokedAreBounded(t *testing.T) {
	a := newAuthority()
	full := make([]Serial, MaxRevoked)
	for i := range full {
		binary.BigEndian.PutUint32(full[i][:], uint32(i))
	}
	const key = RemovedTree + "node/b"
	more := &RemovalRecord{Serials: []Serial{full[0], {255}}}
	for _, locked := range []bool{false, true} {
		if locked {
			a.trust.Admins = KeyList{Count: 1, Keys: []Key{public(a.admin)}}
			if err := more.Sign(key, a.admin); err != nil {
				t.Fatal(err)
			}
		}
		d := NewDesired("a", a.trust, full)
		e := d.Apply([]store.Change{put(t, key, more)})
		n := len(d.Revoked()) - MaxRevoked
		if (n == 1) != locked || (len(e.Claims) == 0) != locked {
			t.Errorf("signed %v: %d more, claims %v", locked, n, e.Claims)
		}
		known := &RemovalRecord{Serials: full[:2]}
		e = d.Apply([]store.Change{put(t, RemovedTree+"node/c", known)})
		if !locked && len(e.Claims) > 0 {
			t.Errorf("what is known already is refused: %v", e.Claims)
		}
	}
}
