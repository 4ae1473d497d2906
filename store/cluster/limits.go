package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/store"
)

// What a host or a feed writes is in the memory and on the disk of every host. So the keys of each
// are a few, and their values small, whatever it writes: a stolen credential fills neither the
// store nor the other hosts.
const (
	maxChunks = 128       // of the pods of a host
	maxChunk  = 256 << 10 // bytes of one
	maxOwn    = 8 << 10   // bytes of a host's endpoints, or of its report
	maxBucket = maxDocument
)

// HostMayRead returns an error for more than a host asks for at once: single keys, its own pods and
// the parts of one text. It follows everything else: a read or a watch of that would be in the
// memory of weir-store for as long as a stolen host takes nothing.
func HostMayRead(name, of string, watch bool) error {
	text, isText := strings.CutPrefix(of, TextTree)
	var digest Digest
	switch {
	case watch:
	case !strings.HasSuffix(of, "/"), of == PodsTree+name+"/",
		isText && digest.UnmarshalText([]byte(strings.TrimSuffix(text, "/"))) == nil:
		return nil
	}
	return fmt.Errorf("read %s: %w: a host follows it", of, store.ErrPermission)
}

// FeedMayRead returns an error for more than a feed asks for at once: single buckets.
func FeedMayRead(of string, watch bool) error {
	if watch || strings.HasSuffix(of, "/") {
		return fmt.Errorf("read %s: %w: a feed reads single buckets", of, store.ErrPermission)
	}
	return nil
}

// HostMayWrite returns an error for a transaction with which a host writes something else than its
// endpoints, its report and its chunks of pods, or more than they may have. A host deletes nothing:
// what is gone has an empty value.
func HostMayWrite(name string, t store.Txn) error {
	return mayWrite(t, func(key string) (most int) {
		switch {
		case key == EndpointKey+name, key == ReportTree+name:
			return maxOwn
		case isChunk(name, key):
			return maxChunk
		}
		return 0
	})
}

// FeedMayWrite returns an error for a transaction with which a feed writes something else than the
// buckets of its table.
func FeedMayWrite(table string, t store.Txn) error {
	buckets := TableTree + table + "/"
	return mayWrite(t, func(key string) (most int) {
		bucket, ok := strings.CutPrefix(key, buckets)
		if n, err := strconv.ParseUint(bucket, 16, 8); ok && err == nil &&
			bucket == fmt.Sprintf("%02x", n) {
			return maxBucket
		}
		return 0
	})
}

// AdminMayWrite returns an error for a transaction with which an administrator changes which hosts
// were removed: weir-store removes them. A removal record gets another signature, and nothing else.
// get reads what the store has; the transaction compares the revision of that.
func AdminMayWrite(get func(key string) (store.Entry, bool), t store.Txn) error {
	const records = RemovedTree + "node/"
	for _, key := range t.Delete {
		if strings.HasPrefix(key, records) {
			return fmt.Errorf("delete %s: %w: a removal is final", key, store.ErrPermission)
		}
	}
	for _, p := range t.Put {
		if !strings.HasPrefix(p.Key, records) {
			continue
		}
		had, _ := get(p.Key)
		before, bad := Decode[RemovalRecord](had.Value)
		record, err := Decode[RemovalRecord](p.Value)
		if errors.Join(bad, err) != nil || !slices.Equal(before.Serials, record.Serials) ||
			!bytes.Equal(before.CA, record.CA) ||
			!slices.Contains(t.Compare, store.Compare{Key: p.Key, Revision: had.Revision}) {
			return fmt.Errorf("write %s: %w: only its signature may change", p.Key,
				store.ErrPermission)
		}
	}
	return nil
}

// mayWrite checks a transaction; most returns how long the value of a key may be, 0 for no key.
func mayWrite(t store.Txn, most func(key string) int) error {
	if len(t.Delete) > 0 {
		return fmt.Errorf("delete %s: %w: an empty value takes its place", t.Delete[0],
			store.ErrPermission)
	}
	for _, p := range t.Put {
		switch n := most(p.Key); {
		case n == 0:
			return fmt.Errorf("write %s: %w: there is no such key", p.Key, store.ErrPermission)
		case len(p.Value) > n:
			return fmt.Errorf("write %s: %w: %d bytes, at most %d", p.Key, store.ErrPermission,
				len(p.Value), n)
		}
	}
	return nil
}

// How full the database may be, in percent, for what grows. The texts of rules have more space
// than pods, and versions and joins more than texts. What is beyond 100 is for removals, which
// weir-store makes: nothing that hosts and administrators send needs it.
const (
	hostFillLimit    = 80
	adminFillLimit   = 90
	versionFillLimit = 95
	removalFillLimit = 100 // that an administrator signs again
	// JoinFillLimit is how full the database may be for a host that joins.
	JoinFillLimit = versionFillLimit
)

// HostFillLimit returns how full the database may be for a longer value of a key that a host or a
// feed writes. Endpoints and reports have a key each, and a load waits for reports.
func HostFillLimit(key string) int {
	if strings.HasPrefix(key, PodsTree) || strings.HasPrefix(key, TableTree) {
		return hostFillLimit
	}
	return adminFillLimit
}

// AdminFillLimit is HostFillLimit for an administrator.
func AdminFillLimit(key string) int {
	switch {
	case strings.HasPrefix(key, RemovedTree):
		return removalFillLimit
	case key == HeadKey, key == KeysKey:
		return versionFillLimit
	}
	return adminFillLimit
}
