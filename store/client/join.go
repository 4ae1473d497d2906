package client

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// Join is the input of a join.
type Join struct {
	Token        identity.Token
	Address      string // of a weir-store
	Name         string
	Key          ed25519.PrivateKey // of the host's certificate; it stays here
	WireGuardKey [32]byte           // the public one

	// Old is the key of the certificate that the host has, if its name is in use by itself.
	Old ed25519.PrivateKey

	// Dial connects; it is eyeballs.Dialer.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Joined is the result of a join.
type Joined struct {
	wire.JoinAnswer
	Credential *identity.Credential
}

// Do joins. The context bounds it. After an error that is not weir-store's answer the host may be a
// member or not. Then Do with the same keys, a new token and Old as the same key makes sure.
func (j Join) Do(ctx context.Context) (*Joined, error) {
	conn, err := secure(ctx, identity.JoinTLS(j.Token.CA), j.Dial, j.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.Address, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	request, err := wire.JoinRequest{Invite: j.Token.Name(), Name: j.Name,
		Key: j.Key.Public().(ed25519.PublicKey), WireGuardKey: j.WireGuardKey[:]}.Encode()
	if err != nil {
		return nil, err
	}
	m := wire.Join{Request: request}
	if m.Proof, err = j.Token.Proof(conn.ConnectionState(), request); err != nil {
		return nil, err
	}
	if j.Old != nil {
		binding, err := identity.Binding(conn.ConnectionState(), request)
		if err != nil {
			return nil, err
		}
		m.Rejoin = ed25519.Sign(j.Old, binding)
	}
	_, err = conn.Write(m.Encode())
	var t wire.Type
	var body []byte
	if err == nil {
		t, body, err = wire.ReadFrame(bufio.NewReader(conn), wire.MaxFrame)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s gave no answer in time: %w", j.Address, ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%s: %w", j.Address, err)
	case t == wire.TypeJoined:
		return j.joined(body)
	}
	return nil, (&session{}).ends(t, body)
}

// joined checks the answer: the certificate is for this host's name and key, of the token's CA. The
// host trusts that one alone.
func (j Join) joined(body []byte) (*Joined, error) {
	a, err := wire.DecodeJoinAnswer(body)
	if err != nil {
		return nil, err
	}
	if len(a.CAs) == 0 || identity.FingerprintOf(a.CAs[0]) != j.Token.CA {
		return nil, errors.New("the answer has another CA than the token")
	}
	// Of other CAs the token says nothing: one that weir-store names may be an attacker's.
	c := &identity.Credential{Certificate: a.Certificate, Key: j.Key, CAs: a.CAs[:1]}
	peer, err := c.Verify()
	if err != nil {
		return nil, err
	}
	if want := (identity.ID{Kind: identity.Host, Name: j.Name}); peer.ID != want {
		return nil, fmt.Errorf("the certificate is for %v, not for %v", peer.ID, want)
	}
	return &Joined{a, c}, nil
}
