package test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
	desired "github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
)

// attacker has stolen etcd: it reads and writes there, past weir-store.
type attacker struct {
	t    *testing.T
	http *http.Client
}

func (k *cluster) attacker() *attacker {
	socket := filepath.Join(k.a.root, "var/lib/weir-store/etcd/client")
	return &attacker{k.t, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}}
}

// ask makes a call of etcd. Values are Base64 there, as package json has bytes.
func (x *attacker) ask(call string, request, answer any) {
	x.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		x.t.Fatal(err)
	}
	r, err := x.http.Post("http://etcd/v3/kv/"+call, "application/json", bytes.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		x.t.Fatalf("%s: %s", call, r.Status)
	}
	if err := json.NewDecoder(r.Body).Decode(answer); err != nil {
		x.t.Fatal(err)
	}
}

func (x *attacker) get(key string) []byte {
	x.t.Helper()
	var answer struct {
		Kvs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	x.ask("range", map[string][]byte{"key": []byte(key)}, &answer)
	if len(answer.Kvs) != 1 {
		x.t.Fatalf("%s: %d values", key, len(answer.Kvs))
	}
	return answer.Kvs[0].Value
}

func (x *attacker) put(e store.Entry) {
	x.t.Helper()
	var answer struct{}
	x.ask("put", map[string][]byte{"key": []byte(e.Key), "value": e.Value}, &answer)
}

func (x *attacker) write(key string, d desired.Document) {
	x.t.Helper()
	value, err := desired.Encode(d)
	if err != nil {
		x.t.Fatal(err)
	}
	x.put(store.Entry{Key: key, Value: value})
}

func (x *attacker) head() desired.Head {
	x.t.Helper()
	h, err := desired.Decode[desired.Head](x.get(desired.HeadKey))
	if err != nil {
		x.t.Fatal(err)
	}
	return h
}

// open writes a version that lets everything in, signed with a key; nil: none.
func (x *attacker) open(key ed25519.PrivateKey) desired.Number {
	x.t.Helper()
	digest, parts, err := desired.EncodeText(attackerRule + "\n")
	if err != nil {
		x.t.Fatal(err)
	}
	for _, p := range parts {
		x.put(p)
	}
	before := x.head()
	h := before.Next(map[desired.Scope]desired.Digest{desired.All: digest}, "admin", 0)
	if key != nil {
		if err := h.Sign(key); err != nil {
			x.t.Fatal(err)
		}
	}
	x.write(desired.HeadKey, &h)
	return h.Number
}

const attackerRule = "add 4711 allow ip from any to any"

// refusesVersion waits until a host says in its status that it does not accept a version, and
// checks that it enforces the one before.
func (k *cluster) refusesVersion(h *podHost, refused, enforced desired.Number) {
	k.t.Helper()
	k.eventually("a version is refused", func() error {
		s := h.status()
		for _, p := range s.Problems {
			if strings.Contains(p.What, fmt.Sprintf("version %v: not signed", refused)) &&
				strings.Contains(p.Advice, "weir cluster sign") {
				return nil
			}
		}
		return fmt.Errorf("problems: %+v", s.Problems)
	})
	if list := h.weir("fw", "list"); strings.Contains(list, "4711") ||
		!strings.Contains(list, "app=web") {
		k.t.Errorf("in force:\n%s", list)
	}
	if s := h.status(); s.Cluster == nil || s.Cluster.Version != enforced.String() {
		k.t.Errorf("status: %+v", s.Cluster)
	}
}

// accepts waits until a host enforces a version and has no problem.
func (k *cluster) accepts(h *podHost, n desired.Number) {
	k.t.Helper()
	k.eventually(fmt.Sprintf("version %v is enforced", n), func() error {
		s := h.status()
		if s.Cluster == nil || s.Cluster.Version != n.String() || len(s.Problems) > 0 {
			return fmt.Errorf("%+v, %+v", s.Cluster, s.Problems)
		}
		return nil
	})
}

// TestLongSignedRules: a version that an administrator of the list has signed is in force on all
// hosts. One that an attacker in etcd has written is not. Each host says so, also after a start and
// if it joined later, and no command of an administrator signs it. A key that is taken off the list
// signs nothing any more.
func TestLongSignedRules(t *testing.T) {
	t.Parallel()
	k := newCluster(t, "--signed")
	k.join("a", k.a)
	k.join("b", k.b)
	x := k.attacker()
	if out, err := k.load(clusterRules); err != nil || !strings.Contains(out, "on 2 of 2 hosts") {
		t.Fatalf("%s, %v", out, err)
	}
	good := x.head().Number
	k.accepts(k.a, good)
	k.accepts(k.b, good)
	k.withDamagedRecord()
	k.withoutSignature(x, good)
	k.withListOfAttacker(x, good)
	good, stolen := k.withRemovedKey(x)

	// A host that joins now has the list from its invitation.
	k.join("c", k.c)
	k.eventually("c refuses the version", func() error {
		s := k.c.status()
		for _, p := range s.Problems {
			if strings.Contains(p.What, fmt.Sprintf("version %v: not signed", stolen)) {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Problems)
	})
	if list := k.c.weir("fw", "list"); strings.Contains(list, "4711") {
		t.Errorf("in force on a host that joined later:\n%s", list)
	}
	k.a.weir("cluster", "sign", good.String())
	for _, h := range []*podHost{k.a, k.b, k.c} {
		k.accepts(h, good)
	}
}

// withDamagedRecord damages what the administrator's host knows of versions: nothing is signed, and
// what only reads works.
func (k *cluster) withDamagedRecord() {
	const file = "var/lib/weir/store/version"
	good, err := os.ReadFile(filepath.Join(k.a.root, file))
	if err != nil {
		k.t.Fatal(err)
	}
	k.a.file(file, "{")
	if out := k.a.weir("node", "list"); !strings.Contains(out, "host-b") {
		k.t.Errorf("hosts:\n%s", out)
	}
	k.a.weir("cluster", "keys")
	k.refuses(k.a, file, "fw", "load", k.a.file("more.rules", clusterRules))
	k.refuses(k.a, file, "cluster", "keys", "add")
	k.a.file(file, string(good))
}

// withoutSignature has the attacker write a version that no one has signed.
func (k *cluster) withoutSignature(x *attacker, good desired.Number) {
	stolen := x.open(nil)
	for _, h := range []*podHost{k.a, k.b} {
		k.refusesVersion(h, stolen, good)
	}
	k.b.stop()
	k.b.start()
	k.refusesVersion(k.b, stolen, good)
	k.refuses(k.a, "not signed by an accepted key", "fw", "load", "--on", "role:host-b",
		k.a.file("more.rules", "add 300 allow tcp from any to any 22 keep-state\n"))
	k.refuses(k.a, "other rules of [all]", "cluster", "sign", stolen.String())
	k.a.weir("cluster", "sign", good.String()) // puts it back
	k.accepts(k.a, good)
	k.accepts(k.b, good)
}

// withListOfAttacker has the attacker write a list of keys, and a version that one of them signed.
func (k *cluster) withListOfAttacker(x *attacker, good desired.Number) {
	list := x.get(desired.KeysKey)
	lists, err := desired.Decode[desired.AdminKeys](list)
	if err != nil {
		k.t.Fatal(err)
	}
	own, err := identity.NewKey()
	if err != nil {
		k.t.Fatal(err)
	}
	lists.Add(desired.KeyList{Count: 2, Keys: []desired.Key{publicOf(own)}})
	x.write(desired.KeysKey, &lists)
	stolen := x.open(own)
	for _, h := range []*podHost{k.a, k.b} {
		k.refusesVersion(h, stolen, good)
	}
	k.refuses(k.a, "not those that this host knows", "cluster", "keys", "add")
	k.refuses(k.a, "not signed by those that this host knows", "cluster", "invite")
	k.a.weir("cluster", "sign", good.String())
	k.accepts(k.a, good)
	k.accepts(k.b, good)
}

// withRemovedKey makes a second administrator on b, whose version is good, and whose key is then
// taken off the list: the attacker has it, and writes another version.
func (k *cluster) withRemovedKey(x *attacker) (good, stolen desired.Number) {
	file := filepath.Join(k.b.root, "etc/weir/admin.pem")
	program, err := storeProgram()
	if err != nil {
		k.t.Fatal(err)
	}
	k.a.host.Run(program, "issue", "--dir", filepath.Join(k.a.root, "var/lib/weir-store"),
		"admin:two", file)
	text, err := os.ReadFile(file)
	if err != nil {
		k.t.Fatal(err)
	}
	credential, err := identity.ParseCredential(text)
	if err != nil {
		k.t.Fatal(err)
	}
	second := publicOf(credential.Key).String()
	if out := k.b.weir("cluster", "keys"); !strings.Contains(out, "not one of them") ||
		!strings.Contains(out, second) {
		k.t.Errorf("keys:\n%s", out)
	}
	rules := k.b.file("cluster.rules", "add 20 deny tcp from any to any 25\n"+clusterRules)
	k.refuses(k.b, "another administrator", "fw", "load", rules)
	k.a.weir("cluster", "keys", "add", second)
	k.eventually("b knows the list", func() error {
		out, stderr, err := k.b.try("fw", "load", rules)
		if err != nil {
			err = fmt.Errorf("%w: %s%s", err, out, stderr)
		}
		return err
	})
	good = x.head().Number
	k.accepts(k.a, good)
	k.accepts(k.b, good)
	k.a.weir("cluster", "keys", "remove", second)
	k.refuses(k.b, "another administrator", "fw", "load", rules)
	stolen = x.open(credential.Key)
	for _, h := range []*podHost{k.a, k.b} {
		k.refusesVersion(h, stolen, good)
	}
	return good, stolen
}

// refuses runs a command on a host that has to fail with a text.
func (k *cluster) refuses(h *podHost, want string, args ...string) {
	k.t.Helper()
	out, stderr, err := h.try(args...)
	if err == nil || !strings.Contains(stderr, want) {
		k.t.Errorf("weir %s: %v, %s%s; want %q", strings.Join(args, " "), err, out, stderr, want)
	}
}

func publicOf(k ed25519.PrivateKey) desired.Key {
	return desired.Key(k.Public().(ed25519.PublicKey))
}
