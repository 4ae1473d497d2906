package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/store"
)

// Issued is the document of IssuedKey: the certificates of administrators and feeds that are in
// force. One that is not in it is not accepted.
type Issued struct {
	Versioned
	Certificates []IssuedCertificate `json:"certificates,omitempty"`
	// Revoked are the serial numbers of those that were revoked: a backup of before does not put
	// them in force again.
	Revoked []Serial `json:"ended,omitempty"` // the key is older than the word
}

// IssuedCertificate names a certificate.
type IssuedCertificate struct {
	ID     string `json:"id"` // identity.ID: admin:NAME or feed:TABLE
	Serial Serial `json:"serial"`
}

// Check implements Document.
func (i *Issued) Check() error {
	for _, c := range i.Certificates {
		kind, name, _ := strings.Cut(c.ID, ":")
		if kind != "admin" && kind != "feed" {
			return fmt.Errorf("%q is not the identity of an administrator or a feed", c.ID)
		}
		if err := CheckName(name); err != nil {
			return err
		}
		if c.Serial == (Serial{}) {
			return fmt.Errorf("%s has no serial number", c.ID)
		}
	}
	return errors.Join(ascending("certificates", i.Certificates, IssuedCertificate.Compare),
		ascending("ended", i.Revoked, Serial.Compare))
}

// Compare orders certificates by identity and serial number.
func (c IssuedCertificate) Compare(other IssuedCertificate) int {
	return cmp.Or(cmp.Compare(c.ID, other.ID), c.Serial.Compare(other.Serial))
}

// Revoke takes certificates out of force and returns how many there were.
func (i *Issued) Revoke(which func(IssuedCertificate) bool) (revoked int) {
	kept := slices.DeleteFunc(slices.Clone(i.Certificates), func(c IssuedCertificate) bool {
		if !which(c) {
			return false
		}
		i.Revoked = append(i.Revoked, c.Serial)
		return true
	})
	revoked = len(i.Certificates) - len(kept)
	slices.SortFunc(i.Revoked, Serial.Compare)
	i.Certificates, i.Revoked = kept, slices.Compact(i.Revoked)
	return revoked
}

// MaxRevoked is how many serial numbers a host or a weir-store keeps that were revoked without a
// signature. They stay for ever, and one who controls the store can write any number.
const MaxRevoked = 1 << 20

// RevokedOthers returns the serial numbers that an entry of the store names as revoked, of admins
// and feeds. The document has no signature: what it names revokes no certificate of a host.
func RevokedOthers(e store.Entry) []Serial {
	if e.Key != IssuedKey {
		return nil
	}
	i, err := Decode[Issued](e.Value)
	if err != nil {
		return nil
	}
	return i.Revoked
}

// RevokedHosts returns the serial numbers of hosts that an entry of the store names as revoked. ca
// are the keys that sign certificates of hosts, and admins those that sign removal records, as
// KeyList.Signers returns them.
func RevokedHosts(e store.Entry, ca, admins []Key) []Serial {
	switch {
	case strings.HasPrefix(e.Key, NodeTree):
		if n, err := Decode[Node](e.Value); err == nil && n.Verify(ca) == nil {
			return n.Replaces
		}
	case strings.HasPrefix(e.Key, RemovedTree+"node/"):
		if serials, err := removedBy(e.Key, e.Value, admins); err == nil {
			return serials
		}
	}
	return nil
}

// removedBy returns the serial numbers that a removal record ends. Without admins every removal
// record is good.
func removedBy(key string, value []byte, admins []Key) ([]Serial, error) {
	r, err := Decode[RemovalRecord](value)
	if err == nil {
		err = r.Verify(key, admins)
	}
	return r.Serials, err
}

// Membership is the document of MembersKey: Count increases with every change of a host's roles.
type Membership struct {
	Versioned
	Count uint64 `json:"count"`
}

// Check implements Document.
func (m *Membership) Check() error {
	if m.Count == 0 {
		return errors.New("the changes of roles are counted from 1")
	}
	return nil
}

// maxUses is how many hosts may join with one token.
const maxUses = 10000

// maxValid is how long a token may be valid.
const maxValid = 30 * 24 * time.Hour

// Invite is the document below InviteTree: a token that was not used up.
type Invite struct {
	Versioned
	Verifier Digest   `json:"verifier"` // identity.Token.Verifier
	Roles    []string `json:"roles,omitempty"`
	Labels   []string `json:"labels,omitempty"` // keys of labels that the host may give
	Uses     int      `json:"uses"`             // that are left
	// Seconds is for how long it is valid. weir-store counts them by its own timer from when it
	// first saw the token.
	Seconds int64 `json:"seconds"`
	// Signature is the CA's, which signs for the host that joins what is here.
	Signature Signature `json:"signature,omitempty"`
}

// Sign signs the invitation of a token, which has an id, with the CA's private key.
func (i *Invite) Sign(id string, ca []byte) (err error) {
	i.Version = layout
	i.Signature, err = sign(ca, "invite", id, i.content())
	return err
}

func (i *Invite) content() Invite {
	c := *i
	c.Signature = nil
	return c
}

// Verify returns an error unless the CA signed the invitation. ca are its public keys.
func (i *Invite) Verify(id string, ca []Key) error {
	return verify(ca, "invite", id, i.content(), i.Signature)
}

// Check implements Document.
func (i *Invite) Check() error {
	switch {
	case i.Verifier == (Digest{}):
		return errors.New("a token needs a verifier")
	case i.Uses < 1 || i.Uses > maxUses:
		return fmt.Errorf("a token for %d hosts: 1 to %d are possible", i.Uses, maxUses)
	case i.Seconds < 1 || i.Seconds > int64(maxValid/time.Second):
		return fmt.Errorf("a token that is valid for %d s: up to %v are possible", i.Seconds,
			maxValid)
	}
	// The certificate of the host that joins has them.
	as := Node{Name: "host", Serial: Serial{1}, TLS: Key{1}, WireGuard: Key{1}, Roles: i.Roles,
		Labels: i.Labels}
	return as.Check()
}
