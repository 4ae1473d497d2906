package disk

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/weirnet/weir/store"
)

// Record is an element of the log: one step of the copy.
type Record struct {
	Batch  store.Batch
	Accept bool // held removals were accepted; Batch is empty
}

// Snapshot is the content of the copy at one point of the log.
type Snapshot struct {
	Stored   store.Snapshot
	Held     []store.Entry // what the host enforces and the store does not have
	LastGood []store.Entry // good values of keys whose value in the store was refused
}

// intro begins a snapshot. The number is that of the format.
const intro = "weir copy 1\n"

// maxRecord is how long a record may be: a difference may be as large as the copy.
const maxRecord = 1 << 30

var errDamaged = errors.New("damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends a record with its header: length, checksum, number.
func appendRecord(b []byte, number uint64, r *Record) []byte {
	begin := len(b)
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, flag(r.Accept))
	b = binary.AppendVarint(b, r.Batch.Revision)
	b = binary.AppendUvarint(b, uint64(len(r.Batch.Changes)))
	for _, ch := range r.Batch.Changes {
		b = append(b, flag(ch.Deleted))
		b = appendEntry(b, &ch.Entry)
	}
	binary.BigEndian.PutUint32(b[begin:], uint32(len(b)-begin-8))
	binary.BigEndian.PutUint32(b[begin+4:], crc32.Checksum(b[begin+8:], castagnoli))
	return b
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func appendEntry(b []byte, e *store.Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(e.Key)))
	b = append(b, e.Key...)
	b = binary.AppendVarint(b, e.Revision)
	b = binary.AppendUvarint(b, uint64(len(e.Value)))
	return append(b, e.Value...)
}

// readRecord reads the first record of b and returns what follows it.
func readRecord(b []byte) (number uint64, r Record, rest []byte, err error) {
	if len(b) < 8 {
		return 0, r, nil, errDamaged
	}
	n := binary.BigEndian.Uint32(b)
	if n > maxRecord || uint64(n) > uint64(len(b)-8) {
		return 0, r, nil, errDamaged
	}
	body, rest := b[8:8+n], b[8+n:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return 0, r, nil, errDamaged
	}
	d := decoder{left: body}
	number = d.uint64()
	r.Accept = d.byte() == 1
	r.Batch.Revision = d.varint()
	for range d.count() {
		deleted := d.byte() == 1
		r.Batch.Changes = append(r.Batch.Changes,
			store.Change{Entry: d.entry(), Deleted: deleted})
	}
	return number, r, rest, d.end()
}

// encode returns the file of a snapshot.
func encode(number uint64, s *Snapshot) []byte {
	b := []byte(intro)
	b = binary.BigEndian.AppendUint64(b, number)
	b = binary.AppendVarint(b, s.Stored.Revision)
	for _, entries := range [][]store.Entry{s.Stored.Entries, s.Held, s.LastGood} {
		b = binary.AppendUvarint(b, uint64(len(entries)))
		for i := range entries {
			b = appendEntry(b, &entries[i])
		}
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decode reads the file of a snapshot.
func decode(b []byte) (number uint64, s Snapshot, err error) {
	at := len(b) - sha256.Size
	if at < len(intro) || string(b[:len(intro)]) != intro {
		return 0, s, fmt.Errorf("not a copy of the store, or one of another version: %w",
			errDamaged)
	}
	if sum := sha256.Sum256(b[:at]); string(sum[:]) != string(b[at:]) {
		return 0, s, fmt.Errorf("the checksum is wrong: %w", errDamaged)
	}
	d := decoder{left: b[len(intro):at]}
	number = d.uint64()
	s.Stored.Revision = d.varint()
	for _, entries := range []*[]store.Entry{&s.Stored.Entries, &s.Held, &s.LastGood} {
		for range d.count() {
			*entries = append(*entries, d.entry())
		}
	}
	return number, s, d.end()
}

// decoder reads values one after the other. After a mistake it returns zeros.
type decoder struct {
	left []byte
	bad  bool
}

func (d *decoder) end() error {
	if d.bad || len(d.left) > 0 {
		return errDamaged
	}
	return nil
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.left)) {
		d.bad, d.left = true, nil
		return nil
	}
	b := d.left[:n:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.left)
	if n <= 0 {
		d.bad, d.left = true, nil
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.left)
	if n <= 0 {
		d.bad, d.left = true, nil
		return 0
	}
	d.left = d.left[n:]
	return v
}

// count reads a number of elements of at least one byte each.
func (d *decoder) count() uint64 {
	n := d.uvarint()
	if n > uint64(len(d.left)) {
		d.bad, d.left = true, nil
		return 0
	}
	return n
}

func (d *decoder) entry() store.Entry {
	key := string(d.take(d.uvarint()))
	revision := d.varint()
	value := d.take(d.uvarint())
	return store.Entry{Key: key, Value: value, Revision: revision}
}
