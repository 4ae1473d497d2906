package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
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
	id := cluster.Identity{ID: cluster.Serial(identity.NewSerial()), Epoch: 1}
	ca, err := identity.NewCA(id.ID.String())
	must(err)
	id.CA = [][]byte{ca.Certificate()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	id.Stores = []string{listener.Addr().String()}

	root := t.TempDir()
	paths := agent.Paths{Root: root}
	by, err := identity.Issue(ca, identity.ID{Kind: identity.Admin, Name: "a"})
	must(err)
	serveStore(t, listener, ca, id, by)
	file, err := by.MarshalPEM()
	must(err)
	must(os.MkdirAll(filepath.Dir(paths.Admin()), 0o755))
	must(os.WriteFile(paths.Admin(), file, 0o600))
	joined, err := identity.Issue(ca, identity.ID{Kind: identity.Host, Name: "b"})
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
	must((&disk.Member{Name: "b", Cluster: id.ID, Epoch: 1, Stores: []string{gone.Addr().String()},
		Node: node, Credential: string(text)}).Write(paths.Store()))

	named, err := cluster.Encode(&id)
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
		t.Errorf("status %d, %s%s; %v serves", status, &out, &messages, id.Stores)
	}
}

// serveStore serves a cluster, on the model, until the test ends.
func serveStore(t *testing.T, l net.Listener, ca *identity.CA, id cluster.Identity,
	admin *identity.Credential) {
	t.Helper()
	peer, err := admin.Peer()
	if err != nil {
		t.Fatal(err)
	}
	own, err := identity.Issue(ca, identity.ID{Kind: identity.Store, Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := own.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	model := storetest.NewModel(time.Minute)
	if err := members.CreateCluster(t.Context(), model, id, peer); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Store: model, Name: cluster.Watched, TLS: config,
		Cluster: members.ClusterOf, Admit: members.Admit})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	group.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		cancel()
		s.Close()
		group.Wait()
	})
}
