package cluster

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// layout is the version of all documents.
const layout = 1

// maxDocument is how long a document may be. A transaction has more bytes, for the keys.
const maxDocument = 512 << 10

// Versioned is the beginning of every document.
type Versioned struct {
	Version int `json:"version"`
}

func (v *Versioned) versioned() *Versioned { return v }

// Document is a value of the store.
type Document interface {
	versioned() *Versioned
	// Check returns an error for a document that makes no sense on its own.
	Check() error
}

// ErrNewer means that a later Weir wrote a document.
var ErrNewer = errors.New("written by a later Weir")

// ErrDocument means that a value is not the document that its key demands.
var ErrDocument = errors.New("not a valid document")

// Encode returns the value of a document, which it checks.
func Encode(d Document) ([]byte, error) {
	d.versioned().Version = layout
	if err := d.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	value, err := json.Marshal(d)
	if err == nil && len(value) > maxDocument {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrDocument, len(value), maxDocument)
	}
	return value, err
}

// Decode reads a document and checks it. A document has one form, that of Encode: a value with
// other blanks, another order, unknown or repeated fields is refused.
func Decode[T any, D interface {
	*T
	Document
}](value []byte) (doc T, err error) {
	if len(value) > maxDocument {
		return doc, fmt.Errorf("%w: %d bytes, at most %d", ErrDocument, len(value), maxDocument)
	}
	d := D(&doc)
	err = json.Unmarshal(value, d)
	v := *d.versioned()
	if err != nil { // a later version may have other types of fields
		_ = json.Unmarshal(value, &v)
	}
	if v.Version > layout {
		return doc, fmt.Errorf("%w: its version is %d, this Weir knows %d", ErrNewer, v.Version,
			layout)
	}
	if err != nil {
		return doc, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if err := d.Check(); err != nil {
		return doc, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	again, err := json.Marshal(d)
	if err != nil {
		return doc, err
	}
	if v.Version != layout || !bytes.Equal(again, value) {
		return doc, fmt.Errorf("%w: not in the one form that it has", ErrDocument)
	}
	return doc, nil
}

// Key is a public key, of Ed25519 or of WireGuard.
type Key [32]byte

func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(b) != len(k) {
		return fmt.Errorf("%q is not a key", text)
	}
	copy(k[:], b)
	return nil
}

// Serial is the serial number of a host's certificate: random, never used again.
type Serial [16]byte

func (s Serial) String() string { return hex.EncodeToString(s[:]) }

// Compare orders serial numbers.
func (s Serial) Compare(other Serial) int { return bytes.Compare(s[:], other[:]) }

// MarshalText implements encoding.TextMarshaler.
func (s Serial) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Serial) UnmarshalText(text []byte) error { return unhex(s[:], text) }

// Digest is the SHA-256 of a text of rules.
type Digest [32]byte

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error { return unhex(d[:], text) }

func unhex(to, text []byte) error {
	if hex.DecodedLen(len(text)) != len(to) {
		return fmt.Errorf("%q has not %d digits", text, 2*len(to))
	}
	_, err := hex.Decode(to, text)
	return err
}

// Signature is one of Ed25519; empty in what is signed.
type Signature []byte

// ErrSignature means that a document does not carry the signature that it needs.
var ErrSignature = errors.New("not signed by an accepted key")

// signed is what a signature is about: what kind of document, whose it is, and its content without
// signatures.
func signed(what, name string, content any) ([]byte, error) {
	b, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "weir %d %s %s\n%s", layout, what, name, b), nil
}

func sign(key ed25519.PrivateKey, what, name string, content any) (Signature, error) {
	b, err := signed(what, name, content)
	if err != nil {
		return nil, err
	}
	return ed25519.Sign(key, b), nil
}

// verify reports whether one of the keys signed the content.
func verify(keys []Key, what, name string, content any, s Signature) error {
	b, err := signed(what, name, content)
	if err != nil {
		return err
	}
	if len(s) == ed25519.SignatureSize {
		for _, k := range keys {
			if ed25519.Verify(k[:], b, s) {
				return nil
			}
		}
	}
	return ErrSignature
}

// ascending returns an error unless each element is larger than the one before.
func ascending[T any](what string, all []T, compare func(a, b T) int) error {
	for i := 1; i < len(all); i++ {
		if compare(all[i-1], all[i]) >= 0 {
			return fmt.Errorf("%s: not in order, or twice: %v", what, all[i])
		}
	}
	return nil
}
