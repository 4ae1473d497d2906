package cluster

import (
	"log/slog"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// TestRevokedBeforeItJoined: a host believes no certificate that was revoked before it joined,
// although the store has it and no mark: an earlier state of the database was put back.
func TestRevokedBeforeItJoined(t *testing.T) {
	l := newLab(t)
	log := slog.New(slog.DiscardHandler)
	s, err := Open(Config{Name: "a", Dir: t.TempDir(), Trust: l.trust(), Key: keyOf("a"),
		Revoked: []cluster.Serial{{2, 1}}, Parts: newParts().parts(), Log: log,
		Problems: &problem.List{Log: log}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	removed := l.entry(cluster.NodeTree+"b", l.node("b", 2, "10.0.2.0/24"))
	other := l.entry(cluster.NodeTree+"c", l.node("c", 3, "10.0.3.0/24"))
	s.Step(store.Batch{Revision: 1, Changes: []store.Change{{Entry: removed}, {Entry: other}}})
	if s.desired.Node("b") != nil || s.desired.Node("c") == nil {
		t.Errorf("hosts: %+v", s.desired.Hosts())
	}
}
