package overlay

import (
	"testing"
	"time"
)

func TestCopies(t *testing.T) {
	var s handshakes
	initiation, response, data := make([]byte, sizeInitiation), make([]byte, sizeResponse), make([]byte, 200)
	initiation[0], initiation[macOfInitiation], response[0], response[macOfResponse], data[0] = 1, 7, 2, 8, 4
	now := int64(1e12)
	for _, b := range [][]byte{initiation, response} {
		if s.isCopy(b, now) {
			t.Error("the first one is taken for a copy")
		}
		if !s.isCopy(b, now+1) || !s.isCopy(b, now+handshakeLife-1) {
			t.Error("a copy is not known")
		}
		if s.isCopy(b, now+handshakeLife+1) {
			t.Error("a copy is remembered too long")
		}
	}
	for range 2 {
		if s.isCopy(data, now) || s.isCopy(data[:0], now) || s.isCopy(initiation[:100], now) {
			t.Error("what is no handshake is taken for a copy")
		}
	}
	other := append([]byte(nil), initiation...)
	for i := range 1000 { // a flood must not make the table grow
		other[macOfInitiation+1], other[macOfInitiation+2] = byte(i), byte(i>>8)
		s.isCopy(other, now+handshakeLife)
	}
}

// TestHandshakesInCopies: every datagram comes twice, at once. Each of many new sessions must carry data.
func TestHandshakesInCopies(t *testing.T) {
	a, b := through(t, &middlebox{repeat: 1000})
	for range 10 {
		echo(t, a, b, 100)
		time.Sleep(50 * time.Millisecond) // WireGuard takes no two initiations within 20 ms
		key := b.key.Public()
		if err := a.dev.RemovePeer(key); err != nil {
			t.Fatal(err)
		}
		a.peer(t, b, nil, "10.1.0.2:51820")
	}
	if s := a.dev.Stats(); s.Copies == 0 {
		t.Errorf("no copy was seen: %+v", s)
	}
}
