package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// JoinRequest is what a host sends that joins. Private keys stay on the host.
type JoinRequest struct {
	Version      int    `json:"version"`
	Invite       string `json:"invite"` // id of the token
	Name         string `json:"name"`
	Key          []byte `json:"key"`          // Ed25519, for its certificate
	WireGuardKey []byte `json:"wireguardKey"` // Curve25519
}

// JoinAnswer is what it gets.
type JoinAnswer struct {
	Version     int            `json:"version"`
	Cluster     string         `json:"cluster"`
	Epoch       uint64         `json:"epoch"`
	Certificate []byte         `json:"certificate"` // DER
	CAs         [][]byte       `json:"cas"`         // DER; the first signed the certificate
	Stores      []string       `json:"stores"`      // addresses of weir-stores
	Ranges      []netip.Prefix `json:"ranges"`
	Node        []byte         `json:"node"`           // the value of w/node/NAME
	Keys        []byte         `json:"keys,omitempty"` // the value of w/keys
	// Revoked are serial numbers of hosts whose certificates are revoked, 16 bytes each.
	Revoked []byte `json:"ended,omitempty"` // the key is older than the word
}

// joinVersion is the version of both documents.
const joinVersion = 1

// Encode returns the document.
func (q JoinRequest) Encode() ([]byte, error) {
	q.Version = joinVersion
	return json.Marshal(q)
}

// Encode returns the document.
func (a JoinAnswer) Encode() ([]byte, error) {
	a.Version = joinVersion
	return json.Marshal(a)
}

// DecodeJoinRequest is the opposite of Encode.
func DecodeJoinRequest(text []byte) (q JoinRequest, err error) {
	if err = strict(text, &q); err == nil && q.Version != joinVersion {
		err = fmt.Errorf("a request of version %d", q.Version)
	}
	return q, err
}

// DecodeJoinAnswer is the opposite of Encode.
func DecodeJoinAnswer(text []byte) (a JoinAnswer, err error) {
	if err = strict(text, &a); err == nil && a.Version != joinVersion {
		err = fmt.Errorf("an answer of version %d", a.Version)
	}
	return a, err
}

// strict decodes one document that has no unknown fields.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the document")
	}
	return nil
}
