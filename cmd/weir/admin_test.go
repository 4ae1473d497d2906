package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
)

// TestCommandsKnowLaterStores: the commands of an administrator reach a weir-store that came after
// the host had joined, when those before are gone: the host's copy names it.
func TestCommandsKnowLaterStores(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	serves := newJoinable(t)
	root := t.TempDir()
	paths := agent.Paths{Root: root}
	file, err := serves.admin.MarshalPEM()
	must(err)
	must(os.MkdirAll(filepath.Dir(paths.Admin()), 0o755))
	must(os.WriteFile(paths.Admin(), file, 0o600))
	joined, err := identity.Issue(serves.ca, identity.ID{Kind: identity.Host, Name: "b"})
	must(err)
	text, err := joined.MarshalPEM()
	must(err)
	node, err := cluster.Encode(&cluster.Node{Name: "b", Serial: cluster.Serial{1},
		TLS: cluster.Key(joined.Key.Public().(ed25519.PublicKey)), WireGuard: cluster.Key{1},
		Signature: cluster.Signature{1}})
	must(err)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	must(gone.Close())
	must((&disk.Member{Name: "b", Cluster: serves.id.ID, Epoch: 1,
		Stores: []string{gone.Addr().String()}, Node: node,
		Credential: string(text)}).Write(paths.Store()))

	named, err := cluster.Encode(&serves.id)
	must(err)
	d, _, err := disk.Open(paths.Store())
	must(err)
	must(d.WriteSnapshot(disk.Snapshot{Stored: store.Snapshot{Revision: 1}}))
	must(d.Append(disk.Record{Batch: store.Batch{Revision: 2, Changes: []store.Change{
		{Entry: store.Entry{Key: cluster.IdentityKey, Value: named, Revision: 2}}}}}))
	must(d.Close())

	var out, messages bytes.Buffer
	status := run(t.Context(), []string{"--root", root, "node", "list", "-j"}, nil, &out, &messages)
	if status != 0 || !json.Valid(out.Bytes()) {
		t.Errorf("status %d, %s%s; %v serves", status, &out, &messages, serves.id.Stores)
	}
}
