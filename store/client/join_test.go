package client

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// TestJoinedTrustsTheTokensCA: a host trusts the CA that its token names, and no other one that a
// weir-store names beside it: neither for its own certificate nor later.
func TestJoinedTrustsTheTokensCA(t *testing.T) {
	ca, attacker := newCA(t), newCA(t)
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	token := identity.NewToken(identity.FingerprintOf(ca.Certificate()))
	j := Join{Token: token, Name: "b", Key: key}
	for what, by := range map[string]*identity.CA{"the cluster": ca, "an attacker": attacker} {
		der, err := by.Issue(identity.ID{Kind: identity.Host, Name: "b"},
			key.Public().(ed25519.PublicKey), identity.NewSerial())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := wire.JoinAnswer{Certificate: der,
			CAs: [][]byte{ca.Certificate(), attacker.Certificate()}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		joined, err := j.joined(answer)
		if (err == nil) != (by == ca) {
			t.Errorf("a certificate of %s: %v", what, err)
		}
		if err == nil && (len(joined.Credential.CAs) != 1 ||
			!bytes.Equal(joined.Credential.CAs[0], ca.Certificate())) {
			t.Errorf("the host trusts %d CAs", len(joined.Credential.CAs))
		}
	}
}

func newCA(t *testing.T) *identity.CA {
	t.Helper()
	ca, err := identity.NewCA("c")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}
