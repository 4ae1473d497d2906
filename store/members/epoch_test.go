package members_test

import (
	"crypto/ed25519"
	"math"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// TestEpochOfABackup: a restore begins an epoch that hosts believe, also from a backup that was
// made after an attacker had written the last one that there is.
func TestEpochOfABackup(t *testing.T) {
	attacker, admin := keyOf(1), keyOf(2)
	admins := []cluster.Key{cluster.Key(admin.Public().(ed25519.PublicKey))}
	head := func(epoch uint64, by ed25519.PrivateKey) *cluster.Head {
		h := &cluster.Head{Number: cluster.Number{Epoch: epoch, Count: 1}, By: "a"}
		if by != nil {
			if err := h.Sign(by); err != nil {
				t.Fatal(err)
			}
		}
		return h
	}
	const last = math.MaxUint64
	for name, c := range map[string]struct {
		known, written uint64
		head           *cluster.Head
		admins         []cluster.Key
		want           uint64 // the epoch that a restore begins; 0: it refuses
	}{
		"the same":                      {3, 3, head(3, nil), nil, 4},
		"an old backup":                 {3, 1, head(1, nil), nil, 4},
		"on another host":               {0, 3, head(3, nil), nil, 4},
		"no rules":                      {0, 3, nil, nil, 4},
		"the last one":                  {3, last, head(last, nil), nil, 4},
		"the last one, on another host": {0, last, head(last, nil), nil, 0},
		"signed":                        {3, 4, head(4, admin), admins, 5},
		"signed, no rules":              {3, 3, nil, admins, 4},
		"named only":                    {3, 60000, head(3, admin), admins, 4},
		"signed by an attacker":         {3, 60000, head(60000, attacker), admins, 0},
		"the last one, signed":          {3, last, head(last, admin), admins, 4},
	} {
		doc := cluster.Identity{ID: cluster.Serial{1}, Epoch: c.written}
		var entries []store.Entry
		var by ed25519.PrivateKey
		add := func(key string, d cluster.Document) {
			value, err := cluster.Encode(d)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, store.Entry{Key: key, Value: value})
		}
		add(cluster.IdentityKey, &doc)
		if c.head != nil {
			add(cluster.HeadKey, c.head)
		}
		if c.admins != nil {
			add(cluster.KeysKey, &cluster.AdminKeys{
				Lists: []cluster.KeyList{{Count: 1, Keys: c.admins}}})
			by = admin
		}
		got, err := restore(t, storetest.NewModel(time.Second), entries,
			members.PriorState{Epoch: c.known}, by)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: epoch %d, %v; want %d", name, got, err, c.want)
		}
	}
}

func keyOf(n byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed)
}
