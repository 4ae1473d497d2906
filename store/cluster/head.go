package cluster

import (
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"time"

	"github.com/weirnet/weir/store"
)

// Limits of a version.
const (
	maxText   = 32 << 20  // of the rules of a scope
	partBytes = 256 << 10 // of a part of a compressed text
	maxScopes = 4096
	minTrial  = time.Second
	maxTrial  = time.Hour
)

// Number orders heads: by epoch, then by count. It only rises.
type Number struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`
}

// Compare returns -1, 0 or 1 as a is lower than b, equal or higher.
func (a Number) Compare(b Number) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Count, b.Count))
}

func (a Number) String() string { return fmt.Sprintf("%d.%d", a.Epoch, a.Count) }

func (a Number) plus(n uint64) Number { return Number{a.Epoch, a.Count + n} }

// Head is the document of HeadKey: a version of the rules.
type Head struct {
	Versioned
	Number Number           `json:"number"`
	Scopes map[Scope]Digest `json:"scopes,omitempty"` // the digest of each scope's text
	By     string           `json:"by"`               // who loaded it, for people
	// Session is the connection of the one who loaded it to the host where he works, which that
	// host must not cut off.
	Session   *Session  `json:"session,omitempty"`
	Trial     *Trial    `json:"trial,omitempty"` // nil: confirmed
	Signature Signature `json:"signature,omitempty"`
}

// Session is a TCP connection to a host.
type Session struct {
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
}

// Trial is what a version on trial needs.
type Trial struct {
	Milliseconds int64 `json:"milliseconds"`
	// Revert is the head that takes its place when it is not confirmed: the version before, with
	// the next number. It is signed when the trial begins, since the one who could sign it
	// may be away when the trial ends.
	Revert Head `json:"revert"`
}

// Duration returns how long the trial takes.
func (t *Trial) Duration() time.Duration { return time.Duration(t.Milliseconds) * time.Millisecond }

// CheckTrial refuses a trial that is too short or too long, also of a node alone.
func CheckTrial(t time.Duration) error {
	if t < minTrial || t > maxTrial {
		return fmt.Errorf("a trial takes between %v and %v, not %v", minTrial, maxTrial, t)
	}
	return nil
}

// Check implements Document.
func (h *Head) Check() error {
	if h.Number.Epoch == 0 || h.Number.Count == 0 || !printable(h.By) || len(h.Scopes) > maxScopes {
		return errors.New("a version needs a number, an author and scopes")
	}
	for s := range h.Scopes {
		if _, err := ParseScope(string(s)); err != nil {
			return err
		}
	}
	if h.Trial == nil {
		return nil
	}
	if err := CheckTrial(h.Trial.Duration()); err != nil {
		return err
	}
	r := &h.Trial.Revert
	if r.Trial != nil || r.Number != h.Number.plus(1) || r.Version != h.Version {
		return errors.New("a trial goes back to a confirmed version with the next number")
	}
	return r.Check()
}

// Same reports whether two heads have the same rules.
func (h *Head) Same(other *Head) bool { return maps.Equal(h.Scopes, other.Scopes) }

// Next returns the head that follows h with other texts, on trial if try is not 0. A version on
// trial takes three numbers: its own, that of going back, and that of confirming, which is the
// highest: who has seen the confirmation never goes back.
func (h *Head) Next(scopes map[Scope]Digest, by string, try time.Duration) Head {
	next := Head{Number: h.after(), Scopes: scopes, By: by}
	next.Version = layout
	if try > 0 {
		back := Head{Number: next.Number.plus(1), Scopes: h.Scopes, By: by}
		back.Version = layout
		next.Trial = &Trial{Milliseconds: try.Milliseconds(), Revert: back}
	}
	return next
}

// after is the first number that h does not use.
func (h *Head) after() Number {
	if h.Trial != nil {
		return h.Number.plus(3)
	}
	return h.Number.plus(1)
}

// Confirmed returns the head that confirms a version on trial.
func (h *Head) Confirmed(by string) (Head, error) {
	if h.Trial == nil {
		return Head{}, errors.New("no version is on trial; nothing to confirm")
	}
	c := Head{Number: h.Number.plus(2), Scopes: h.Scopes, By: by}
	c.Version = layout
	return c, nil
}

// Sign signs a head, and the one that it may go back to, with an admin's private key.
func (h *Head) Sign(key []byte) (err error) {
	h.Version = layout
	if h.Trial != nil {
		if err := h.Trial.Revert.Sign(key); err != nil {
			return err
		}
	}
	h.Signature, err = sign(key, "head", h.Number.String(), h.content())
	return err
}

// unsigned returns the head without any signature.
func (h *Head) unsigned() *Head {
	c := h.content()
	if c.Trial != nil {
		t := *c.Trial
		t.Revert.Signature = nil
		c.Trial = &t
	}
	return &c
}

func (h *Head) content() Head {
	c := *h
	c.Signature = nil
	return c
}

// Verify returns an error unless one of the admins signed the head, and what it may go back to.
// Without admins every head is good.
func (h *Head) Verify(admins []Key) error {
	if len(admins) == 0 {
		return nil
	}
	if h.Trial != nil {
		if err := h.Trial.Revert.Verify(admins); err != nil {
			return err
		}
	}
	return verify(admins, "head", h.Number.String(), h.content(), h.Signature)
}

// Text is the document of a part of a text: rules and tables of a scope, compressed.
type Text struct {
	Versioned
	Data []byte `json:"data"`
}

// Check implements Document.
func (t *Text) Check() error {
	if len(t.Data) == 0 || len(t.Data) > partBytes {
		return fmt.Errorf("a part has 1 to %d bytes, not %d", partBytes, len(t.Data))
	}
	return nil
}

// TextDigest names a text.
func TextDigest(text string) Digest { return sha256.Sum256([]byte(text)) }

// EncodeText returns the entries that hold a text, named by its digest.
func EncodeText(text string) (Digest, []store.Entry, error) {
	digest := TextDigest(text)
	if len(text) > maxText {
		return digest, nil, fmt.Errorf("the rules have %d bytes, at most %d", len(text), maxText)
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return digest, nil, err
	}
	var parts []store.Entry
	for data := b.Bytes(); len(data) > 0; {
		n := min(len(data), partBytes)
		value, err := Encode(&Text{Data: data[:n]})
		if err != nil {
			return digest, nil, err
		}
		parts = append(parts, store.Entry{Key: fmt.Sprintf("%s%v/%04d", TextTree, digest,
			len(parts)), Value: value})
		data = data[n:]
	}
	return digest, parts, nil
}

// DecodeText reads a text from its parts, ordered by key, and compares the digest.
func DecodeText(digest Digest, parts []store.Entry) (string, error) {
	var b bytes.Buffer
	for i, e := range parts {
		t, err := Decode[Text](e.Value)
		if err == nil && e.Key != fmt.Sprintf("%s%v/%04d", TextTree, digest, i) {
			err = ErrDocument
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", e.Key, err)
		}
		b.Write(t.Data)
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(&b), maxText+1))
	if err != nil {
		return "", fmt.Errorf("text %v: %w: %w", digest, ErrDocument, err)
	}
	if Digest(sha256.Sum256(text)) != digest {
		return "", fmt.Errorf("text %v: %w: it has another digest", digest, ErrDocument)
	}
	return string(text), nil
}
