package identity

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// Kind is what an identity may be.
type Kind string

// Kinds of identities.
const (
	Host  Kind = "host"  // a host's agent
	Admin Kind = "admin" // an administrator
	Feed  Kind = "feed"  // a program that maintains the table of the same name
	Store Kind = "store" // a weir-store
)

// ID names one that has a certificate.
type ID struct {
	Kind Kind
	Name string
}

// String returns the common name of the certificate, such as host:web1.
func (id ID) String() string { return string(id.Kind) + ":" + id.Name }

// maxName is how long the name of an identity may be.
const maxName = 63

// ParseID is the opposite of String. It does not check the name further than its length and that it
// cannot be a subtree: package cluster does that.
func ParseID(s string) (ID, error) {
	kind, name, _ := strings.Cut(s, ":")
	id := ID{Kind(kind), name}
	switch id.Kind {
	case Host, Admin, Feed, Store:
		if name != "" && len(name) <= maxName && !strings.ContainsAny(name, "/:") {
			return id, nil
		}
	}
	return ID{}, fmt.Errorf("%q is not the name of a host, admin, feed or store", s)
}

// Serial is the serial number of a certificate.
type Serial [16]byte

// NewSerial returns a random serial number.
func NewSerial() Serial {
	var s Serial
	rand.Read(s[:]) // never fails
	s[0] &= 0x7f    // a positive number with 16 bytes (RFC 5280, 4.1.2.2)
	s[0] |= 0x40
	return s
}

// String returns 32 hexadecimal digits.
func (s Serial) String() string { return hex.EncodeToString(s[:]) }

// MarshalText returns what String does.
func (s Serial) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the opposite of MarshalText.
func (s *Serial) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(s) {
		return fmt.Errorf("%q is not a serial number: it has 32 hexadecimal digits", text)
	}
	copy(s[:], b)
	return nil
}

// NewClusterID returns a random id of a cluster.
func NewClusterID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
