package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

// smallMember returns a driver and what keeps space free, of a member with a database of 32 MiB and
// a reserve of 8.
func smallMember(t *testing.T) (*Driver, *Maintenance) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m, err := Start(t.Context(), MemberConfig{Dir: dir, Quota: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	d, err := Open(Config{Client: clientv3.Config{Endpoints: []string{m.Endpoint()}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, m.Maintenance(d)
}

// put reports whether etcd takes a value, or is full. A member whose disk is busy for seconds gives
// no answer, and is asked again.
func put(t *testing.T, d *Driver, key string, value []byte) (taken bool) {
	t.Helper()
	return takes(t, d, store.Txn{Put: []store.Entry{{Key: key, Value: value}}})
}

// takes is put for a transaction that may be made twice.
func takes(t *testing.T, d *Driver, x store.Txn) (taken bool) {
	t.Helper()
	storetest.Eventually(t, "etcd answers", func() bool {
		_, err := d.Commit(t.Context(), x)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		taken = err == nil
		return taken || errors.Is(err, rpctypes.ErrNoSpace)
	})
	return taken
}

// freeSpace frees space if that is needed. A member whose disk is busy for seconds is asked again.
func freeSpace(t *testing.T, s *Maintenance) {
	t.Helper()
	for late := time.Now().Add(testTimeout); ; time.Sleep(50 * time.Millisecond) {
		err := s.FreeSpaceIfNeeded(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
}

// fill writes values of 512 KiB until etcd takes no more, and returns how many it took.
func fill(t *testing.T, d *Driver, key func(n int) string) (n int) {
	t.Helper()
	value := bytes.Repeat([]byte("0123456789abcdef"), 32<<10)
	for ; n < 200; n++ {
		if !put(t, d, key(n), value) {
			return n
		}
	}
	t.Fatal("the database is never full")
	return n
}

// fillTo writes values of 512 KiB until the database is so full, and returns how many it wrote. It
// is slow: etcd writes in batches, and tells its size after them.
func fillTo(t *testing.T, d *Driver, s *Maintenance, full int, key func(n int) string) (n int) {
	t.Helper()
	value := bytes.Repeat([]byte("0123456789abcdef"), 32<<10)
	for ; s.PercentFull() < full; n++ {
		if !put(t, d, key(n), value) {
			t.Fatal("the database is full")
		}
		time.Sleep(50 * time.Millisecond)
	}
	return n
}

func mayWrite(t *testing.T, d *Driver) bool {
	t.Helper()
	return put(t, d, "small", []byte("1"))
}

// TestFullOfHistory: a database at its quota takes writes again after the next look, without what
// etcd's own compaction would have kept for an hour.
func TestFullOfHistory(t *testing.T) {
	d, s := smallMember(t)
	fill(t, d, func(int) string { return "one" })
	if mayWrite(t, d) {
		t.Fatal("etcd takes a write at its quota")
	}
	storetest.Eventually(t, "it takes writes again", func() bool {
		freeSpace(t, s)
		return mayWrite(t, d)
	})
	if s.PercentFull() > 25 {
		t.Errorf("%d %% full, and it has one value", s.PercentFull())
	}
}

// TestHistoryBeforeItIsFull: a database that is half full drops the history that is older than a
// minute, and gives the space back. The test fills it again: pages that etcd frees can bring it
// below a half, and then nothing is to be done.
func TestHistoryBeforeItIsFull(t *testing.T) {
	d, s := smallMember(t)
	fillTo(t, d, s, 60, func(int) string { return "one" })
	freeSpace(t, s)
	storetest.Eventually(t, "there is space again", func() bool {
		fillTo(t, d, s, shortFrom, func(int) string { return "one" })
		s.at = s.at.Add(-time.Minute)
		freeSpace(t, s)
		return s.PercentFull() < 25
	})
}

// TestOneDefragments: a member does not defragment while another one does.
func TestOneDefragments(t *testing.T) {
	d, s := smallMember(t)
	fillTo(t, d, s, 60, func(int) string { return "one" })
	other, err := concurrency.NewSession(d.Client())
	if err != nil {
		t.Fatal(err)
	}
	lock := concurrency.NewMutex(other, defragKey)
	if err := lock.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		s.at = s.at.Add(-time.Minute)
		freeSpace(t, s)
	}
	storetest.Eventually(t, "the history is dropped", func() bool {
		look()
		now, err := d.Client().Status(t.Context(), s.member.Endpoint())
		return err == nil && (now.DbSizeInUse < now.DbSize/2 || s.PercentFull() < 60)
	})
	if look(); s.PercentFull() < 60 {
		t.Errorf("%d %% full: it has not waited for the other member", s.PercentFull())
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if look(); s.PercentFull() > 25 {
		t.Errorf("%d %% full after the other member", s.PercentFull())
	}
	left, err := d.Keys(t.Context(), defragKey+"/")
	if err != nil || len(left) > 0 {
		t.Errorf("locks that are left: %v, %v", left, err)
	}
}

// TestReserve: etcd takes removals when all that hosts and administrators may fill is in use, and
// there is nothing to drop.
func TestReserve(t *testing.T) {
	d, s := smallMember(t)
	n := 0
	storetest.Eventually(t, "there is nothing to drop", func() bool {
		n += fillTo(t, d, s, 100, func(i int) string { return fmt.Sprintf("k%03d", n+i) })
		err := s.FreeSpaceIfNeeded(t.Context())
		return err != nil && strings.Contains(err.Error(), "only removals")
	})
	for n := range 500 {
		if !put(t, d, fmt.Sprint("m", n), make([]byte, 2<<10)) {
			t.Fatalf("removal %d is refused", n)
		}
	}
}

// TestFullOfValues: what is in use cannot be dropped. The look says so, and after deletions, which
// etcd takes, the store takes writes again.
func TestFullOfValues(t *testing.T) {
	d, s := smallMember(t)
	n := 0
	storetest.Eventually(t, "it says that it is full", func() bool {
		// The last value may leave so much space that a look ends the alarm.
		n += fill(t, d, func(i int) string { return fmt.Sprintf("k%03d", n+i) })
		err := s.FreeSpaceIfNeeded(t.Context())
		return err != nil && strings.Contains(err.Error(), "is full")
	})
	keys, err := d.Keys(t.Context(), "k000")
	if err != nil || len(keys) != 1 || keys[0].Value != nil || keys[0].Revision == 0 {
		t.Errorf("%v, %v", keys, err)
	}
	for i := range n / 2 {
		if !takes(t, d, store.Txn{Delete: []string{fmt.Sprintf("k%03d", i)}}) {
			t.Fatalf("deletion %d is refused", i)
		}
	}
	storetest.Eventually(t, "it takes writes again", func() bool {
		freeSpace(t, s)
		return mayWrite(t, d)
	})
}
