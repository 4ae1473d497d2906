package wire

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/store"
)

// Hello is the first frame of a client.
type Hello struct {
	Cluster string // id; "": any
}

// Encode returns the frame.
func (m Hello) Encode() []byte {
	b := appendUint(begin(TypeHello, 0), Version)
	return finish(appendBytes(b, m.Cluster))
}

// DecodeHello decodes the body of a frame.
func DecodeHello(body []byte) (m Hello, err error) {
	r := &reader{rest: body}
	if v := r.uint(); r.err == nil && v != Version {
		return m, fmt.Errorf("this host has version %d of the protocol, and weir-store version "+
			"%d: install the same Weir on all hosts", v, Version)
	}
	m.Cluster = r.string()
	return m, r.end()
}

// Follow asks for everything that changes after a revision. Sum is that of the copy.
type Follow struct {
	Epoch    uint64
	Revision int64
	Sum      store.Digest
}

// Encode returns the frame.
func (m Follow) Encode() []byte {
	b := appendUint(begin(TypeFollow, 0), m.Epoch)
	b = appendUint(b, uint64(m.Revision))
	return finish(append(b, m.Sum[:]...))
}

// DecodeFollow decodes the body of a frame.
func DecodeFollow(body []byte) (m Follow, err error) {
	r := &reader{rest: body}
	m.Epoch, m.Revision = r.uint(), r.revision()
	r.fixed(m.Sum[:])
	return m, r.end()
}

// Digests are those of the buckets of a copy.
type Digests [store.Buckets]store.Digest

// Encode returns the frame.
func (m *Digests) Encode() []byte {
	b := begin(TypeDigests, len(m)*len(store.Digest{}))
	for i := range m {
		b = append(b, m[i][:]...)
	}
	return finish(b)
}

// DecodeDigests decodes the body of a frame.
func DecodeDigests(body []byte) (*Digests, error) {
	r, m := &reader{rest: body}, &Digests{}
	for i := range m {
		r.fixed(m[i][:])
	}
	return m, r.end()
}

// Read is store.Store's call. Number names it in the Result.
type Read struct {
	Number   uint64
	Name     string
	Revision int64
}

// Encode returns the frame.
func (m Read) Encode() []byte {
	b := appendUint(begin(TypeRead, 0), m.Number)
	b = appendBytes(b, m.Name)
	return finish(appendUint(b, uint64(m.Revision)))
}

// DecodeRead decodes the body of a frame.
func DecodeRead(body []byte) (m Read, err error) {
	r := &reader{rest: body}
	m.Number, m.Name, m.Revision = r.uint(), r.string(), r.revision()
	return m, r.end()
}

// Watch is store.Store's call: Number names it in its Events and the Result that ends it.
type Watch struct {
	Number uint64
	Name   string
	After  int64
}

// Encode returns the frame.
func (m Watch) Encode() []byte {
	b := appendUint(begin(TypeWatch, 0), m.Number)
	b = appendBytes(b, m.Name)
	return finish(appendUint(b, uint64(m.After)))
}

// DecodeWatch decodes the body of a frame.
func DecodeWatch(body []byte) (m Watch, err error) {
	r := &reader{rest: body}
	m.Number, m.Name, m.After = r.uint(), r.string(), r.revision()
	return m, r.end()
}

// EncodeCancel returns the frame that ends a watch.
func EncodeCancel(number uint64) []byte { return finish(appendUint(begin(TypeCancel, 0), number)) }

// DecodeCancel decodes the body of a frame.
func DecodeCancel(body []byte) (number uint64, err error) {
	r := &reader{rest: body}
	number = r.uint()
	return number, r.end()
}

// Commit is store.Store's call.
type Commit struct {
	Number uint64
	Txn    store.Txn
}

// Encode returns the frame. The transaction has passed its Check.
func (m Commit) Encode() []byte {
	b := appendUint(begin(TypeCommit, 0), m.Number)
	b = appendUint(b, uint64(len(m.Txn.Compare)))
	for _, c := range m.Txn.Compare {
		b = appendUint(appendBytes(b, c.Key), uint64(c.Revision))
	}
	b = appendUint(b, uint64(len(m.Txn.Put)))
	for _, p := range m.Txn.Put {
		b = appendBytes(appendBytes(b, p.Key), p.Value)
	}
	b = appendUint(b, uint64(len(m.Txn.Delete)))
	for _, key := range m.Txn.Delete {
		b = appendBytes(b, key)
	}
	return finish(b)
}

// DecodeCommit decodes the body of a frame. It does not check the transaction.
func DecodeCommit(body []byte) (m Commit, err error) {
	r := &reader{rest: body}
	m.Number = r.uint()
	for range r.count(store.MaxOperations) {
		m.Txn.Compare = append(m.Txn.Compare, store.Compare{Key: r.string(),
			Revision: r.revision()})
	}
	for range r.count(store.MaxOperations) {
		m.Txn.Put = append(m.Txn.Put, store.Entry{Key: r.string(), Value: r.bytes()})
	}
	for range r.count(store.MaxOperations) {
		m.Txn.Delete = append(m.Txn.Delete, r.string())
	}
	return m, r.end()
}

// Join is the request of a host without a certificate. Request is JSON, which the proofs cover.
type Join struct {
	Request []byte
	Proof   []byte // identity.Token.Proof
	Rejoin  []byte // a signature of identity.Binding by the old key, or nothing
}

// Encode returns the frame.
func (m Join) Encode() []byte {
	b := appendUint(begin(TypeJoin, 0), Version)
	return finish(appendBytes(appendBytes(appendBytes(b, m.Request), m.Proof), m.Rejoin))
}

// DecodeJoin decodes the body of a frame.
func DecodeJoin(body []byte) (m Join, err error) {
	r := &reader{rest: body}
	if v := r.uint(); r.err == nil && v != Version {
		return m, errors.New("another version of the protocol: install the same Weir on all hosts")
	}
	m.Request, m.Proof, m.Rejoin = r.bytes(), r.bytes(), r.bytes()
	return m, r.end()
}
