package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/store/cluster"
)

// TestFewLines: neither a host that was stolen nor a store that is away for long fills the log.
func TestFewLines(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	s, err := Open(Config{Name: "a", Dir: t.TempDir(), Trust: cluster.Trust{
		Cluster: cluster.Serial{1}}, Log: log, Problems: &problem.List{Log: log}})
	if err != nil {
		t.Fatal(err)
	}
	lines := func(of string) int {
		n := bytes.Count(text.Bytes(), []byte(of))
		text.Reset()
		return n
	}
	const claims = 1000
	began := time.Now()
	for range claims {
		s.take(cluster.Effects{Claims: []cluster.Refusal{{Key: cluster.PodsTree + "b/0000",
			Err: cluster.ErrDocument}}})
	}
	most := 11 + int(time.Since(began)/time.Second)
	if n := lines("store-claim"); n == 0 || n > most || s.claims != claims {
		t.Errorf("%d lines of %d claims, at most %d", n, s.claims, most)
	}
	for range 100 {
		s.failed(errors.New("no route"))
	}
	s.failed(errors.New("refused"))
	s.failed(errors.New("no route"))
	s.mu.Lock()
	s.followedLocked()
	s.mu.Unlock()
	s.failed(errors.New("no route"))
	if n := lines("does not answer"); n != 4 {
		t.Errorf("%d lines of an outage", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
