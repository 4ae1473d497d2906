package members

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// Joiner lets hosts join. It has the CA's key.
type Joiner struct {
	store store.Store
	ca    *identity.CA
	turn  chan struct{} // one joins at a time: joins change the same keys
}

// NewJoiner returns a Joiner.
func NewJoiner(s store.Store, ca *identity.CA) *Joiner {
	return &Joiner{store: s, ca: ca, turn: make(chan struct{}, 1)}
}

// errToken does not say what is wrong with a token.
var errToken = errors.New("the token is not valid, or not any more: weir cluster invite prints " +
	"another one")

// request is a join whose proof is right.
type request struct {
	wire.JoinRequest
	state  tls.ConnectionState
	raw    wire.Join
	invite string // key
}

// Join answers a host: server.Config.Join. One transaction uses the token, claims the ranges and
// creates the host's certificate.
func (j *Joiner) Join(ctx context.Context, state tls.ConnectionState, m wire.Join) ([]byte,
	error) {
	q, err := wire.DecodeJoinRequest(m.Request)
	if err != nil {
		return nil, err
	}
	if err := cluster.CheckName(q.Name); err != nil {
		return nil, err
	}
	if err := cluster.CheckName(q.Invite); err != nil {
		return nil, errToken
	}
	if len(q.Key) != ed25519.PublicKeySize || len(q.WireGuardKey) != len(cluster.Key{}) {
		return nil, errors.New("a host sends two keys of 32 bytes")
	}
	r := &request{q, state, m, cluster.InviteTree + q.Invite}
	if _, _, err := j.invited(ctx, r); err != nil {
		return nil, err
	}
	select {
	case j.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("too many hosts join at once, try again: %w", ctx.Err())
	}
	defer func() { <-j.turn }()
	for {
		answer, err := j.try(ctx, r)
		// Another weir-store, or an administrator, was faster.
		if !errors.Is(err, store.ErrConflict) {
			return answer, err
		}
	}
}

// invited reads the invitation and checks the proof.
func (j *Joiner) invited(ctx context.Context, r *request) (cluster.Invite, int64, error) {
	invite, revision, ok, err := one[cluster.Invite](ctx, j.store, r.invite)
	if err != nil {
		return invite, 0, err
	}
	if !ok || !identity.Verifier(invite.Verifier).Proves(r.state, r.raw.Request, r.raw.Proof) {
		return invite, 0, errToken
	}
	return invite, revision, nil
}

// try makes the transaction from what the store has now.
func (j *Joiner) try(ctx context.Context, r *request) ([]byte, error) {
	invite, invited, err := j.invited(ctx, r)
	if err != nil {
		return nil, err
	}
	doc, _, ok, err := one[cluster.Identity](ctx, j.store, cluster.IdentityKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: %w", cluster.IdentityKey, errors.Join(err, errAbsent(ok)))
	}
	key := cluster.NodeTree + r.Name
	old, had, exists, err := one[cluster.Node](ctx, j.store, key)
	if err != nil {
		return nil, err
	}
	if err := r.mayReplace(exists, old); err != nil {
		return nil, err
	}
	node := cluster.Node{Name: r.Name, Serial: cluster.Serial(identity.NewSerial()),
		TLS: cluster.Key(r.Key), WireGuard: cluster.Key(r.WireGuardKey), Roles: invite.Roles,
		Labels: invite.Labels}
	t, err := j.prepare(ctx, r, invite, node.Host())
	if err != nil {
		return nil, err
	}
	t.Compare = append(t.Compare, store.Compare{Key: r.invite, Revision: invited},
		store.Compare{Key: key, Revision: had})
	ranges, err := cluster.Claim(ctx, j.store, doc.Pools, r.Name,
		func(ranges []netip.Prefix) (store.Txn, error) {
			node.Ranges = slices.Clone(ranges)
			if err := node.Sign(j.ca.Key()); err != nil {
				return store.Txn{}, err
			}
			e, err := entry(key, &node)
			whole := store.Txn{Compare: slices.Clip(t.Compare), Delete: t.Delete,
				Put: append(slices.Clip(t.Put), e)}
			return whole, err
		})
	if err != nil {
		return nil, err
	}
	keys, err := j.store.Read(ctx, cluster.KeysKey, 0)
	if err != nil {
		return nil, err
	}
	return j.answer(doc, node, ranges, keys.Entries)
}

func errAbsent(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("it does not exist: run weir cluster init")
}

// mayReplace returns an error if the name is in use by one that did not sign the request.
func (r *request) mayReplace(exists bool, old cluster.Node) error {
	if !exists {
		return nil
	}
	binding, err := identity.Binding(r.state, r.raw.Request)
	if err != nil {
		return err
	}
	if !ed25519.Verify(old.TLS[:], binding, r.raw.Rejoin) {
		return fmt.Errorf("host %s is a member already: choose another name, or remove it first "+
			"(weir node remove %s)", r.Name, r.Name)
	}
	return nil
}

// prepare returns the part of the transaction that does not depend on the ranges: the use of the
// token, the change of the members, and that the version of the rules is one that the host can
// have.
func (j *Joiner) prepare(ctx context.Context, r *request, invite cluster.Invite,
	host cluster.Host) (t store.Txn, err error) {
	if invite.Uses--; invite.Uses == 0 {
		t.Delete = append(t.Delete, r.invite)
	} else {
		e, err := entry(r.invite, &invite)
		if err != nil {
			return t, err
		}
		t.Put = append(t.Put, e)
	}
	counted, err := countMembers(ctx, j.store)
	if err != nil {
		return t, err
	}
	t.Compare = append(t.Compare, counted.Compare...)
	t.Put = append(t.Put, counted.Put...)
	// After the count was read: whatever joins from now on changes it.
	if err := j.ownKeys(ctx, r); err != nil {
		return t, err
	}
	head, err := checkVersion(ctx, j.store, host)
	if err != nil {
		return t, err
	}
	t.Compare = append(t.Compare, head)
	// The mark of an earlier host of this name. Others have its serial number for ever.
	t.Delete = append(t.Delete, cluster.RemovedTree+"node/"+r.Name)
	return t, nil
}

// ownKeys returns an error if another host has one of the keys. Public keys are public, and of two
// hosts with one key others accept the one that they see first: a host that joined with the key of
// another one would take its place at every host that comes later.
func (j *Joiner) ownKeys(ctx context.Context, r *request) error {
	nodes, err := j.store.Read(ctx, cluster.NodeTree, 0)
	if err != nil {
		return err
	}
	for _, e := range nodes.Entries {
		if e.Key == cluster.NodeTree+r.Name {
			continue
		}
		for _, key := range [][]byte{r.Key, r.WireGuardKey} {
			if bytes.Contains(e.Value, []byte(cluster.Key(key).String())) {
				return fmt.Errorf("a key is that of host %s: make new keys (is this host a copy "+
					"of it?)", strings.TrimPrefix(e.Key, cluster.NodeTree))
			}
		}
	}
	return nil
}

// countMembers returns what changes MembersKey.
func countMembers(ctx context.Context, s store.Store) (t store.Txn, err error) {
	m, revision, _, err := one[cluster.Membership](ctx, s, cluster.MembersKey)
	if err != nil {
		return t, err
	}
	m.Count++
	e, err := entry(cluster.MembersKey, &m)
	return store.Txn{Compare: []store.Compare{{Key: cluster.MembersKey, Revision: revision}},
		Put: []store.Entry{e}}, err
}

func (j *Joiner) answer(doc cluster.Identity, node cluster.Node, ranges []netip.Prefix,
	keys []store.Entry) ([]byte, error) {
	der, err := j.ca.Issue(identity.ID{Kind: identity.Host, Name: node.Name}, node.TLS[:],
		identity.Serial(node.Serial))
	if err != nil {
		return nil, err
	}
	value, err := cluster.Encode(&node)
	if err != nil {
		return nil, err
	}
	cas := [][]byte{j.ca.Certificate()}
	for _, other := range doc.CA {
		if !bytes.Equal(other, cas[0]) {
			cas = append(cas, other)
		}
	}
	a := wire.JoinAnswer{Cluster: doc.ID.String(), Epoch: doc.Epoch, Certificate: der,
		CAs: cas, Stores: doc.Stores, Ranges: ranges, Node: value}
	for _, e := range keys {
		a.Keys = e.Value
	}
	return a.Encode()
}

// sorted returns the names in order, each once, or nil.
func sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}
