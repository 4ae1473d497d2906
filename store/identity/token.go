package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// tokenPrefix begins a token, so that it is recognised in a log or a chat.
const tokenPrefix = "weir1."

// Token is an invitation: what a host needs to join.
type Token struct {
	ID     [8]byte  // names the key of the store
	Secret [16]byte // never leaves the host: see Proof
	CA     Fingerprint
	// Keys is the digest of the keys of administrators that the host demands; zero: none.
	Keys [sha256.Size]byte
}

// NewToken returns a random token for the cluster of a CA.
func NewToken(ca Fingerprint) Token {
	t := Token{CA: ca}
	rand.Read(t.ID[:]) // never fails
	rand.Read(t.Secret[:])
	return t
}

// String returns the token as an administrator types it.
func (t Token) String() string {
	all := append(append(append([]byte(nil), t.ID[:]...), t.Secret[:]...), t.CA[:]...)
	if t.Keys != ([sha256.Size]byte{}) {
		all = append(all, t.Keys[:]...)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(all)
}

// Name returns the last part of the key that the store has for the token.
func (t Token) Name() string { return hex.EncodeToString(t.ID[:]) }

// ParseToken is the opposite of String.
func ParseToken(s string) (Token, error) {
	var t Token
	text, ok := strings.CutPrefix(s, tokenPrefix)
	all, err := base64.RawURLEncoding.Strict().DecodeString(text)
	short := len(t.ID) + len(t.Secret) + len(t.CA)
	if !ok || err != nil || len(all) != short && len(all) != short+len(t.Keys) {
		return Token{}, fmt.Errorf("this is not a token: one begins with %s and has 75 or 118 "+
			"more characters; weir cluster invite prints it", tokenPrefix)
	}
	all = all[copy(t.ID[:], all):]
	all = all[copy(t.Secret[:], all):]
	copy(t.Keys[:], all[copy(t.CA[:], all):])
	return t, nil
}

// Verifier is what the store keeps of a token: the public half of a key that the secret makes. One
// that reads it can prove nothing.
type Verifier [ed25519.PublicKeySize]byte

// key returns the private half.
func (t Token) key() ed25519.PrivateKey {
	seed := sha256.Sum256(append([]byte("weir token 2\x00"), t.Secret[:]...))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Verifier returns what the store keeps.
func (t Token) Verifier() Verifier { return Verifier(t.key().Public().(ed25519.PublicKey)) }

// Proof proves the secret on one connection, together with a request: it is useless on any other
// connection and for any other request.
func (t Token) Proof(state tls.ConnectionState, request []byte) ([]byte, error) {
	b, err := bound(state, "join", request)
	if err != nil {
		return nil, err
	}
	return ed25519.Sign(t.key(), b), nil
}

// Proves reports whether a proof is the right one.
func (v Verifier) Proves(state tls.ConnectionState, request, proof []byte) bool {
	b, err := bound(state, "join", request)
	return err == nil && ed25519.Verify(v[:], b, proof)
}

// Binding returns what a host that has a key already signs to get another certificate of its name:
// it stands for one connection and one request.
func Binding(state tls.ConnectionState, request []byte) ([]byte, error) {
	return bound(state, "rejoin", request)
}

// bound returns what stands for one connection and one request (RFC 8446, 7.5).
func bound(state tls.ConnectionState, what string, request []byte) ([]byte, error) {
	exported, err := state.ExportKeyingMaterial("EXPORTER-weir-"+what, nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(request)
	return slices.Concat([]byte("weir "+what+" 1\x00"), exported, sum[:]), nil
}
