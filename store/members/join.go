package members

import (
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
	// PercentFull is that of server.Server. nil: that is not known.
	PercentFull func() int
	// Pools are what ranges are claimed of; nil: they are not known, and no host joins. The CA
	// signs the range of a host, so those that the store has do not count: an attacker may have
	// written them.
	Pools []cluster.Pool
	// Revoked returns the revoked certificates of hosts: one that joins has not seen how they were,
	// and the store may have lost it. nil: none are known.
	Revoked func() []cluster.Serial
	// Bound returns the certificates that this store host knows without the store. nil: none.
	Bound func() Certificates
	// Note takes changes of the store before they arrive, for Bound.
	Note func([]store.Change)
	// Save writes what Bound returns to the disk, before a host has its answer. nil: it stays in
	// memory.
	Save func()

	ca    *identity.CA
	turn  chan struct{} // one joins at a time: joins change the same keys
	store store.Store
	known *known // of the one whose turn it is
}

// NewJoiner returns a Joiner.
func NewJoiner(s store.Store, ca *identity.CA) *Joiner {
	return &Joiner{store: s, ca: ca, turn: make(chan struct{}, 1), known: &known{Store: s}}
}

// errToken does not say what is wrong with a token.
var errToken = errors.New("the token is invalid or has expired: weir cluster invite prints " +
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
	if j.PercentFull != nil && j.PercentFull() >= cluster.JoinFillLimit {
		return nil, fmt.Errorf("%w: it is %d %% full, and the rest is reserved",
			store.ErrUnavailable, j.PercentFull())
	}
	if len(q.Key) != ed25519.PublicKeySize || len(q.WireGuardKey) != len(cluster.Key{}) {
		return nil, errors.New("a host has to send two keys of 32 bytes")
	}
	r := &request{q, state, m, cluster.InviteTree + q.Invite}
	if _, _, err := j.invited(ctx, r); err != nil {
		return nil, err
	}
	if j.Pools == nil {
		return nil, errors.New("no host can join: config.json of this weir-store has no pools of " +
			"ranges; an administrator adds them there (docs/cluster-init.md), and restarts it")
	}
	answer, err := j.inTurn(ctx, r)
	if err == nil && j.Save != nil {
		j.Save()
	}
	return answer, err
}

// inTurn makes the transaction when no other host joins.
func (j *Joiner) inTurn(ctx context.Context, r *request) ([]byte, error) {
	select {
	case j.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("too many hosts join at once, try again: %w", ctx.Err())
	}
	defer func() { <-j.turn }()
	for {
		answer, err := j.try(ctx, r)
		// Another weir-store, or an administrator, was faster. A compaction may be, too.
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrCompacted) {
			return answer, err
		}
	}
}

// invited reads the invitation and checks the proof.
func (j *Joiner) invited(ctx context.Context, r *request) (cluster.Invite, int64, error) {
	got, err := j.store.Read(ctx, r.invite, 0)
	if err != nil {
		return cluster.Invite{}, 0, err
	}
	return j.proves(r, got)
}

// proves checks the proof by the invitation that was read, and that the CA signed it: who writes
// into the store must not choose roles, label keys, or who joins.
func (j *Joiner) proves(r *request, got store.Snapshot) (cluster.Invite, int64, error) {
	invite, revision, ok, err := read[cluster.Invite](r.invite, got)
	if err != nil {
		return invite, 0, err
	}
	if !ok || invite.Verify(r.Invite, []cluster.Key{j.public()}) != nil ||
		!identity.Verifier(invite.Verifier).Proves(r.state, r.raw.Request, r.raw.Proof) {
		return invite, 0, errToken
	}
	return invite, revision, nil
}

// try makes the transaction from what the store has now.
func (j *Joiner) try(ctx context.Context, r *request) ([]byte, error) {
	key := cluster.NodeTree + r.Name
	got, err := readAll(ctx, j.store, 0, r.invite, cluster.IdentityKey, cluster.MembersKey,
		cluster.HeadKey, cluster.KeysKey, removedKey(r.Name))
	if err != nil {
		return nil, err
	}
	if record, _ := readRemovalRecord(got[5]); !record.HasSpace() {
		return nil, fmt.Errorf("%d certificates of hosts %s were removed: choose another name",
			len(record.Serials), r.Name)
	}
	invite, invited, err := j.proves(r, got[0])
	if err != nil {
		return nil, err
	}
	doc, _, ok, err := read[cluster.Identity](cluster.IdentityKey, got[1])
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: %w", cluster.IdentityKey, errors.Join(err, errAbsent(ok)))
	}
	if err := j.known.learn(ctx, got[2]); err != nil {
		return nil, err
	}
	if err := j.learnBound(ctx, got[4], got[5]); err != nil {
		return nil, err
	}
	old, before, err := j.certificates(r.Name)
	if err != nil {
		return nil, err
	}
	if err := r.mayReplace(old); err != nil {
		return nil, err
	}
	node := cluster.Node{Name: r.Name, Serial: cluster.Serial(identity.NewSerial()),
		TLS: cluster.Key(r.Key), WireGuard: cluster.Key(r.WireGuardKey), Roles: invite.Roles,
		Labels: invite.Labels}
	j.replace(&node, old)
	t, err := j.prepare(r, invite, got[2])
	if err != nil {
		return nil, err
	}
	head, err := checkHead(ctx, j.store, got[3], node.Host())
	if err != nil {
		return nil, err
	}
	t.Compare = append(t.Compare, head, store.Compare{Key: r.invite, Revision: invited},
		store.Compare{Key: key, Revision: before})
	var written store.Entry
	ranges, err := cluster.ClaimRanges(ctx, j.known, j.known.owners, j.Pools, r.Name,
		func(ranges []netip.Prefix) (store.Txn, error) {
			node.Ranges = slices.Clone(ranges)
			if err := node.Sign(j.ca.Key()); err != nil {
				return store.Txn{}, err
			}
			var err error
			written, err = entry(key, &node)
			whole := store.Txn{Compare: slices.Clip(t.Compare), Delete: t.Delete,
				Put: append(slices.Clip(t.Put), written)}
			return whole, err
		})
	if err != nil {
		return nil, err
	}
	if j.Bound != nil {
		j.Note([]store.Change{{Entry: written}})
	}
	return j.answer(doc, node, ranges, got[4].Entries)
}

func errAbsent(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("it does not exist: run weir cluster init")
}

// mayReplace returns an error if the name is in use by one that did not sign the request. old are
// the certificates of that one; the key of the last one counts.
func (r *request) mayReplace(old []cluster.Node) error {
	if len(old) == 0 {
		return nil
	}
	binding, err := identity.Binding(r.state, r.raw.Request)
	if err != nil {
		return err
	}
	if !ed25519.Verify(old[len(old)-1].TLS[:], binding, r.raw.Rejoin) {
		return fmt.Errorf("host %s is a member already: choose another name, or remove it first "+
			"on the store host with the CA's key (weir node remove %s)", r.Name, r.Name)
	}
	return nil
}

// replace has the certificate of a host that joins again end the ones before, whose keys may be
// known to others. Of what the CA has not signed, nothing gets its signature.
func (j *Joiner) replace(node *cluster.Node, old []cluster.Node) {
	for i := range old {
		if one := &old[i]; one.Name == node.Name && one.Verify([]cluster.Key{j.public()}) == nil {
			node.Replace(one)
		}
	}
}

// public is the CA's public key.
func (j *Joiner) public() cluster.Key {
	return cluster.Key(j.ca.Key().Public().(ed25519.PublicKey))
}

// prepare returns the part of the transaction that does not depend on the version of the rules and
// on the ranges. That is the use of the token, and the change of the members.
func (j *Joiner) prepare(r *request, invite cluster.Invite, members store.Snapshot) (t store.Txn,
	err error) {
	if invite.Uses--; invite.Uses == 0 {
		t.Delete = append(t.Delete, r.invite)
	} else {
		if err := invite.Sign(r.Invite, j.ca.Key()); err != nil {
			return t, err
		}
		e, err := entry(r.invite, &invite)
		if err != nil {
			return t, err
		}
		t.Put = append(t.Put, e)
	}
	counted, err := count(members)
	if err != nil {
		return t, err
	}
	t.Compare = append(t.Compare, counted.Compare...)
	t.Put = append(t.Put, counted.Put...)
	return t, j.ownKeys(r)
}

// countMembers returns what changes MembersKey.
func countMembers(ctx context.Context, s store.Store) (t store.Txn, err error) {
	got, err := s.Read(ctx, cluster.MembersKey, 0)
	if err != nil {
		return t, err
	}
	return count(got)
}

// count returns what changes a MembersKey that was read. What is not a document counts as none: its
// revision is what others compare.
func count(got store.Snapshot) (t store.Txn, err error) {
	m, revision, _, err := read[cluster.Membership](cluster.MembersKey, got)
	if err != nil {
		m = cluster.Membership{}
		for _, e := range got.Entries {
			revision = e.Revision
		}
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
	a := wire.JoinAnswer{Cluster: doc.ID.String(), Epoch: doc.Epoch, Certificate: der,
		CAs: [][]byte{j.ca.Certificate()}, Stores: doc.Stores, Ranges: ranges, Node: value}
	for _, e := range keys {
		a.Keys = e.Value
	}
	if j.Revoked != nil {
		revoked := j.Revoked()
		for _, s := range revoked[:min(len(revoked), maxRevoked)] {
			a.Revoked = append(a.Revoked, s[:]...)
		}
	}
	return a.Encode()
}

// maxRevoked is how many revoked certificates an answer has, the first ones of more: a frame holds
// twice as many.
const maxRevoked = 32768

// sorted returns the names in order, each once, or nil.
func sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}
