package transport

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// sealed returns a message with a packet of n bytes, and the packet as it was padded.
func sealed(t testing.TB, key byte, n, mtu int, counter uint64) (message, packet []byte) {
	t.Helper()
	aead, err := chacha20poly1305.New(bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatal(err)
	}
	const before = 100
	b := bytes.Repeat([]byte{0xee}, before+n+Tailroom+50)
	for i := range n {
		b[before+i] = byte(i)
	}
	packet = append(bytes.Clone(b[before:before+n]), make([]byte, Padded(n, mtu)-n)...)
	var s Sealer
	s.Use(aead, 0x01020304)
	message = s.Seal(b, before, n, mtu, counter)
	for i, c := range b {
		if c != 0xee && (i < before-HeaderSize || i >= before+n+Tailroom) {
			t.Fatalf("byte %d of the buffer was written", i)
		}
	}
	return message, packet
}

// TestMessage: the form of a message is that of the protocol, and what was sealed is opened.
func TestMessage(t *testing.T) {
	aead, err := chacha20poly1305.New(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	var o Opener
	for _, counter := range []uint64{0, 1, 1 << 40, math.MaxUint64 - 1<<13 - 2} {
		for _, n := range []int{0, 1, 15, 16, 17, 40, 1419, 1420, 65000} {
			m, packet := sealed(t, 7, n, 1420, counter)
			if len(m) != Padded(n, 1420)+Overhead {
				t.Fatalf("%d bytes for a packet of %d", len(m), n)
			}
			head := binary.LittleEndian.AppendUint64([]byte{4, 0, 0, 0, 4, 3, 2, 1}, counter)
			nonce := binary.LittleEndian.AppendUint64(make([]byte, 4), counter)
			if want := aead.Seal(head, nonce, packet, nil); !bytes.Equal(m, want) {
				t.Fatalf("packet of %d bytes, counter %d: %x, want %x", n, counter, m, want)
			}
			index, ok := Session(m)
			if index != 0x01020304 || !ok {
				t.Fatalf("session %x %v", index, ok)
			}
			got, c, ok := o.Open(aead, m)
			if !ok || c != counter || !bytes.Equal(got, packet) ||
				len(got) > 0 && &got[0] != &m[HeaderSize] {
				t.Fatalf("packet of %d bytes, counter %d: opened %v %d", n, counter, ok, c)
			}
		}
	}
}

// TestPadded: a multiple of 16, but not beyond the MTU.
func TestPadded(t *testing.T) {
	for _, c := range [][3]int{
		{0, 1420, 0}, {1, 1420, 16}, {16, 1420, 16}, {17, 1420, 32}, {1408, 1420, 1408},
		{1409, 1420, 1420}, {1420, 1420, 1420}, {1421, 1420, 1436}, {2840, 1420, 2840},
		{2839, 1420, 2840}, {5, 0, 16}, {70, 64, 80}, {3, 10, 10},
	} {
		if got := Padded(c[0], c[1]); got != c[2] {
			t.Errorf("%d bytes, MTU %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// TestHostile: a bit turned anywhere, a piece cut off, another key: nothing of it is opened.
func TestHostile(t *testing.T) {
	aead, err := chacha20poly1305.New(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	var o Opener
	opens := func(m []byte) bool {
		if _, ok := Session(m); !ok {
			return false
		}
		_, _, ok := o.Open(aead, m)
		return ok
	}
	m, _ := sealed(t, 7, 60, 1420, 9)
	for bit := range len(m) * 8 {
		forged := bytes.Clone(m)
		forged[bit/8] ^= 1 << (bit % 8)
		// the index chooses the key, which the caller does
		if inIndex := bit/8 >= 4 && bit/8 < 8; opens(forged) != inIndex {
			t.Errorf("bit %d", bit)
		}
	}
	for n := range len(m) {
		if opens(bytes.Clone(m[:n])) {
			t.Errorf("%d of %d bytes", n, len(m))
		}
	}
	if opens(append(bytes.Clone(m), 0)) {
		t.Error("one byte more")
	}
	if other, _ := sealed(t, 8, 60, 1420, 9); opens(other) {
		t.Error("another key")
	}
	if !opens(m) {
		t.Error("the genuine one")
	}
}

// FuzzOpen: no input makes opening panic, or opens that was not sealed.
func FuzzOpen(f *testing.F) {
	aead, err := chacha20poly1305.New(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		f.Fatal(err)
	}
	genuine, _ := sealed(f, 7, 60, 1420, 9)
	f.Add(genuine)
	f.Add(genuine[:31])
	f.Add([]byte{4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, m []byte) {
		var o Opener
		if _, ok := Session(m); !ok {
			return
		}
		same := len(m) == len(genuine) && bytes.Equal(m[8:], genuine[8:])
		if _, _, ok := o.Open(aead, m); ok != same {
			t.Errorf("%x: opened %v", m, ok)
		}
	})
}

// FuzzSeal: packets of any size in any place, with any counter: opened they are what they were,
// and nothing beside them was written.
func FuzzSeal(f *testing.F) {
	f.Add(uint16(1420), uint16(1420), uint64(0))
	f.Add(uint16(0), uint16(0), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, n, mtu uint16, counter uint64) {
		m, packet := sealed(t, 3, int(n), int(mtu), counter)
		aead, err := chacha20poly1305.New(bytes.Repeat([]byte{3}, 32))
		if err != nil {
			t.Fatal(err)
		}
		var o Opener
		got, c, ok := o.Open(aead, m)
		if !ok || c != counter || !bytes.Equal(got, packet) {
			t.Errorf("%d bytes, MTU %d, counter %d: %v %d", n, mtu, counter, ok, c)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	aead, err := chacha20poly1305.New(make([]byte, 32))
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 2000)
	var s Sealer
	s.Use(aead, 1)
	b.SetBytes(1400)
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		s.Seal(buf, 100, 1400, 1420, i)
	}
}
