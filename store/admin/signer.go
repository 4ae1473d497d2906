package admin

import (
	"crypto/ed25519"
	"fmt"

	"github.com/weirnet/weir/store/cluster"
)

// Signer is an administrator who signs. A signature is about all of a version, of which most comes
// from the store, and that may be stolen. So nothing is signed that builds on what the
// administrator's own host would refuse.
type Signer struct {
	Key ed25519.PrivateKey // nil: no signature
	// Knows is what that host knows without the store. Without keys of administrators, those that
	// the store has are believed.
	Knows cluster.Trust
}

// keys returns the list of keys that hosts demand. With an error it is the last one that follows
// from what is known.
func (s Signer) keys(st *state) (cluster.KeyList, error) {
	if !s.Knows.Admins.Locked() {
		return st.keys.Newest(), nil
	}
	l, err := s.Knows.Admins.Follow(s.Knows.Cluster, &st.keys)
	if err != nil {
		err = fmt.Errorf("the store's keys of administrators are not those that this host knows: "+
			"%w", err)
	}
	return l, err
}

// mayLead returns an error for a key that hosts do not accept.
func (s Signer) mayLead(l cluster.KeyList) error {
	if !l.Locked() {
		return nil
	}
	if len(s.Key) != ed25519.PrivateKeySize {
		return errUnlisted{}
	}
	if k := KeyOf(s.Key); !l.Has(k) {
		return errUnlisted{k}
	}
	return nil
}

// mayFollow returns an error for a key that hosts do not accept, and unless they accept the version
// that the store has.
func (s Signer) mayFollow(st *state) error {
	l, _ := s.keys(st) // as a host does: what does not follow changes nothing
	if err := s.mayLead(l); err != nil || !l.Locked() {
		return err
	}
	h := &st.head
	if h.Number.Compare(s.Knows.Head) < 0 || h.Number.Count == 0 && s.Knows.Head.Count > 0 {
		return errBehind{h.Number, s.Knows.Head}
	}
	if h.Number.Count == 0 {
		return nil
	}
	if err := h.Verify(l.Keys); err != nil {
		return errUnsigned{h.Number, err}
	}
	return nil
}

// errUnlisted refuses what hosts would not accept.
type errUnlisted struct{ key cluster.Key }

func (e errUnlisted) Error() string {
	return fmt.Sprintf("hosts demand the signature of another administrator: %v is not one of "+
		"their keys", e.key)
}

// Hint returns who can change that.
func (errUnlisted) Hint() string {
	return "weir cluster keys lists them; one of them can add yours"
}

// errBehind refuses to continue from what the store has lost, or withholds.
type errBehind struct{ have, seen cluster.Number }

func (e errBehind) Error() string {
	return fmt.Sprintf("the store has version %v, and this host has seen %v: the next "+
		"version would lack these rules", e.have, e.seen)
}

// Hint returns what to do.
func (errBehind) Hint() string {
	return "weir cluster sign VERSION puts the version of this host back; if everything is " +
		"older: weir cluster restore, or weir cluster init --from-copy"
}

// errUnsigned refuses to sign a version that contains what no administrator signed.
type errUnsigned struct {
	number cluster.Number
	error
}

func (e errUnsigned) Error() string {
	return fmt.Sprintf("version %v, which this one would contain: %v", e.number, e.error)
}

func (e errUnsigned) Unwrap() error { return e.error }

// Hint returns what to do.
func (e errUnsigned) Hint() string {
	return fmt.Sprintf("weir cluster sign %v compares it with what this host enforces; given the "+
		"version of this host, it puts that back", e.number)
}

// errChanged refuses to sign what the signer may not know.
type errChanged struct{ scopes []cluster.Scope }

func (e errChanged) Error() string {
	return fmt.Sprintf("it is not what this host enforces: other rules of %v", e.scopes)
}

// Hint returns what to do.
func (errChanged) Hint() string {
	return "read them: weir fw list --on SCOPE; then weir cluster sign --changed"
}
