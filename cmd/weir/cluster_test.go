package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
)

// TestStoreWords: weir-store gets the words as they are, flags too; --root selects the store's
// files as it selects the node's. Its exit status is that of the command.
func TestStoreWords(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\necho \"$@\"\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, storeProgram), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for line, want := range map[string]string{
		"cluster init --name a -pool 10.0.0.0/8:24": "init --name a -pool 10.0.0.0/8:24",
		"cluster invite --help":                     "invite --help",
		"node remove b":                             "remove b",
		"cluster backup --root /r f":                "backup --dir /r/var/lib/weir-store f",
		"--root=/r cluster init --name a": "init --dir /r/var/lib/weir-store --admin-file " +
			"/r/etc/weir/admin.pem --name a",
	} {
		var out, messages bytes.Buffer
		status := run(t.Context(), strings.Fields(line), nil, &out, &messages)
		got := strings.TrimSpace(out.String())
		if got != want || status != 3 || messages.Len() > 0 {
			t.Errorf("weir %s runs weir-store %q, status %d, %s", line, got, status, &messages)
		}
	}
	t.Setenv("PATH", t.TempDir())
	var out, messages bytes.Buffer
	status := run(t.Context(), []string{"cluster", "invite"}, nil, &out, &messages)
	if status != 1 ||
		!strings.Contains(messages.String(), "install weir-store") {
		t.Errorf("without weir-store: status %d, %s", status, &messages)
	}
}

// TestStoreIsCalledAsTheCommand: the program knows which command of weir runs it, and says that in
// its help. Here it is a shell, which says its name when there is no script of that name.
func TestStoreIsCalledAsTheCommand(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(dir, storeProgram)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for line, want := range map[string]string{"cluster invite": "weir cluster: ",
		"node remove b": "weir node: "} {
		var out, messages bytes.Buffer
		run(t.Context(), strings.Fields(line), nil, &out, &messages)
		if !strings.HasPrefix(messages.String(), want) {
			t.Errorf("weir %s: %s", line, &messages)
		}
	}
}

// TestAloneHasNoCluster: on a host without a cluster the commands of one say so.
func TestAloneHasNoCluster(t *testing.T) {
	root := t.TempDir()
	rules := filepath.Join(root, "rules")
	if err := os.WriteFile(rules, []byte("add allow ip from any to any\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"node list", "cluster keys", "cluster sign 1.1",
		"fw load --on all " + rules} {
		var out, messages bytes.Buffer
		words := append([]string{"--root", root}, strings.Fields(line)...)
		if status := run(t.Context(), words, nil, &out, &messages); status != 1 ||
			!strings.Contains(messages.String(), "has not joined a cluster") {
			t.Errorf("weir %s: status %d, %s", line, status, &messages)
		}
	}
	for _, line := range []string{"join nonsense", "fw load --on web " + rules} {
		var out, messages bytes.Buffer
		words := append([]string{"--root", root}, strings.Fields(line)...)
		if status := run(t.Context(), words, nil, &out, &messages); status != 2 {
			t.Errorf("weir %s: status %d, %s", line, status, &messages)
		}
	}
}

// TestInvitedKeys: a host demands the keys of its invitation, or an earlier list that leads to
// them; what the store adds or withholds does not count.
func TestInvitedKeys(t *testing.T) {
	id := cluster.Serial{1}
	l1, err := cluster.KeyList{}.Next(id, []cluster.Key{{1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l2 := cluster.KeyList{Count: 2, Keys: []cluster.Key{{2}}}
	value, err := cluster.Encode(&cluster.AdminKeys{Lists: []cluster.KeyList{l1, l2}})
	if err != nil {
		t.Fatal(err)
	}
	token := func(l cluster.KeyList) (k identity.Token) {
		d, err := l.Digest(id)
		if err != nil {
			t.Fatal(err)
		}
		k.Keys = d
		return k
	}
	for _, c := range []struct {
		token identity.Token
		value []byte
		count uint64
		fails bool
	}{
		{identity.Token{}, value, 0, false},
		{identity.Token{}, nil, 0, false},
		{token(l2), value, 2, false},
		{token(l1), value, 1, false},
		{token(cluster.KeyList{Count: 1, Keys: []cluster.Key{{3}}}), value, 0, true},
		{token(l1), nil, 0, true},
		{token(l1), []byte("{"), 0, true},
	} {
		got, err := invitedKeys(c.token, id, c.value)
		if got.Count != c.count || (err != nil) != c.fails {
			t.Errorf("%v of %s: %+v, %v", c.token.Keys[:2], c.value, got, err)
		}
	}
}

// joinedAs is what weir-store answers to a host that joins.
func joinedAs(t *testing.T, name string) *client.Joined {
	t.Helper()
	ca, err := identity.NewCA(identity.NewClusterID())
	if err != nil {
		t.Fatal(err)
	}
	credential, err := identity.Issue(ca, identity.ID{Kind: identity.Host, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	node, err := cluster.Encode(&cluster.Node{Name: name, Serial: cluster.Serial{1},
		TLS: cluster.Key{1}, WireGuard: cluster.Key{1}, Signature: cluster.Signature{1}})
	if err != nil {
		t.Fatal(err)
	}
	j := &client.Joined{Credential: credential}
	j.Cluster, j.Epoch, j.Stores, j.Node = ca.Cluster(), 1<<40, []string{name + ":1"}, node
	return j
}

// TestEpochOfAJoin: a host that demands signatures does not believe the epoch that weir-store
// answers: it would refuse every store of a lower one.
func TestEpochOfAJoin(t *testing.T) {
	j := joinedAs(t, "a")
	var id cluster.Serial
	err := id.UnmarshalText([]byte(j.Cluster))
	if err != nil {
		t.Fatal(err)
	}
	list := cluster.KeyList{Count: 1, Keys: []cluster.Key{{1}}}
	if j.Keys, err = cluster.Encode(&cluster.AdminKeys{
		Lists: []cluster.KeyList{list}}); err != nil {
		t.Fatal(err)
	}
	digest, err := list.Digest(id)
	if err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[cluster.Digest]uint64{{}: 1 << 40, digest: 1} {
		m, err := memberOf(client.Join{Name: "a", Token: identity.Token{Keys: keys}}, j,
			t.TempDir())
		if err != nil || m.Epoch != want {
			t.Errorf("with keys %v: %+v, %v; want epoch %d", keys, m, err, want)
		}
	}
}

// TestEndedOfAJoin: a host that joins keeps which certificates had ended by then.
func TestEndedOfAJoin(t *testing.T) {
	j, dir := joinedAs(t, "a"), t.TempDir()
	one, two := cluster.Serial{1}, cluster.Serial{2}
	j.Revoked = slices.Concat(one[:], two[:], []byte{3}) // what is too short is none
	if _, err := memberOf(client.Join{Name: "a"}, j, dir); err != nil {
		t.Fatal(err)
	}
	if m, err := disk.ReadMember(dir); err != nil ||
		!slices.Equal(m.Revoked, []cluster.Serial{one, two}) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestSharedMembersLast: a member with a timeout is refused where the table would be one of the
// cluster, which has none: it would be there for ever, on every host.
func TestSharedMembersLast(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "var/lib/weir/store")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := memberOf(client.Join{Name: "a"}, joinedAs(t, "a"), dir); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"add 192.0.2.7 timeout 1h":             "no timeout",
		"add 192.0.2.6 192.0.2.7 3 timeout 1h": "no timeout",
		"add 192.0.2.7":                        "there is no credential",
	} {
		var messages bytes.Buffer
		words := append([]string{"--root", root, "fw", "table", "banned"},
			strings.Fields(line)...)
		if status := run(t.Context(), words, nil, &messages, &messages); status != 1 ||
			!strings.Contains(messages.String(), want) {
			t.Errorf("%s: status %d, %s", line, status, &messages)
		}
	}
}

// TestKeyWords: keys and versions are read as they are printed.
func TestKeyWords(t *testing.T) {
	for text, want := range map[string]cluster.Number{"1.7": {Epoch: 1, Count: 7}, "1": {},
		"1.7.1": {}, "01.7": {}, "": {}, "a.b": {}} {
		if got, err := parseNumber(text); got != want && err == nil || (err == nil) !=
			(want.Count > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	k := cluster.Key{1, 2}
	if got, err := parseKeys([]string{k.String()}); err != nil || got[0] != k {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseKeys([]string{"x"}); err == nil {
		t.Error("x is a key")
	}
	for _, line := range []string{"cluster keys remove", "cluster keys take x", "cluster sign x",
		"cluster keys add x"} {
		var out, messages bytes.Buffer
		if status := run(t.Context(), strings.Fields(line), nil, &out, &messages); status != 2 {
			t.Errorf("weir %s: status %d, %s", line, status, &messages)
		}
	}
}

// TestHostsOf: a host is listed with what it enforces and what is wrong. Before the cluster has
// rules, nothing is.
func TestHostsOf(t *testing.T) {
	at := func(epoch, count uint64) cluster.Number {
		return cluster.Number{Epoch: epoch, Count: count}
	}
	for _, c := range []struct {
		head              cluster.Number
		report            *cluster.Report
		enforced, problem string
	}{
		{at(1, 0), &cluster.Report{}, "", ""},
		{at(1, 0), nil, "", "it has not reported yet"},
		{at(1, 2), &cluster.Report{}, "", "it enforces another version"},
		{at(1, 2), &cluster.Report{Enforced: at(1, 1)}, "1.1", "it enforces another version"},
		{at(1, 2), &cluster.Report{Enforced: at(1, 2)}, "1.2", ""},
		{at(1, 2), &cluster.Report{Enforced: at(1, 2), Held: 2}, "1.2", "2 removals are held"},
	} {
		got := hostsOf([]admin.Host{{Report: c.report}}, &cluster.Head{Number: c.head}).Hosts[0]
		if got.Enforced != c.enforced || got.Problem != c.problem {
			t.Errorf("%v, %+v: %+v", c.head, c.report, got)
		}
	}
}
