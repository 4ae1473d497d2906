package overlay

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process used so far, user and system.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// multiplication is the CPU time of the smallest piece of work that a handshake consists of.
func multiplication(t *testing.T) time.Duration {
	t.Helper()
	one, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	before := cpuTime(t)
	for range n {
		if _, err := one.ECDH(one.PublicKey()); err != nil {
			t.Fatal(err)
		}
	}
	return (cpuTime(t) - before) / n
}

// inUse is the memory in use when pools are empty.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what a pool had is kept for one round
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// recordData has a send datagrams to b, and returns 100 data messages that carry them, as the
// middle box saw them.
func recordData(t *testing.T) (a, b *side, recorded [][]byte) {
	t.Helper()
	var full atomic.Bool
	// called by two goroutines, of which one sees what a sends
	a, b = through(t, &middlebox{seen: func(p []byte) {
		if p[0] == typeData && len(p) == 112+32 && !full.Load() {
			if recorded = append(recorded, bytes.Clone(p)); len(recorded) == 100 {
				full.Store(true)
			}
		}
	}})
	echo(t, a, b, 10)
	c, err := a.DialContext(t.Context(), "udp", b.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 200 {
		c.Write(make([]byte, 80)) // 108 bytes, 112 when padded
		time.Sleep(100 * time.Microsecond)
	}
	for begin := time.Now(); !full.Load(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > testTimeout {
			t.Fatal("the middle box saw no data")
		}
	}
	return a, b, recorded
}

// hostileMessage is a kind of message that an attacker without a key can make.
type hostileMessage struct {
	name    string
	cookies bool // may be answered by one
	make    func(i int) []byte
}

// hostileMessages to the owner of a public key; recorded are data messages of a session.
func hostileMessages(t *testing.T, to Key, recorded [][]byte) []hostileMessage {
	rnd := mathrand.NewChaCha8([32]byte{1})
	random := func(kind byte, size int) []byte {
		p := make([]byte, size)
		rnd.Read(p)
		binary.LittleEndian.PutUint32(p, uint32(kind))
		return p
	}
	return []hostileMessage{
		{"of no type", false, func(int) []byte { return random(9, 200) }},
		{"of a wrong length", false, func(i int) []byte { return random(byte(1+i%4), 20+i%100) }},
		{"data of no session", false, func(int) []byte { return random(typeData, 200) }},
		{"replayed data", false, func(i int) []byte { return recorded[i%len(recorded)] }},
		{"data with a bit turned", false, func(i int) []byte {
			p := bytes.Clone(recorded[i%len(recorded)])
			p[20+i%60] ^= 1
			return p
		}},
		{"initiations without the key", false, func(int) []byte {
			return random(typeInitiation, sizeInitiation)
		}},
		{"responses to nothing", false, func(int) []byte {
			return random(typeResponse, sizeResponse)
		}},
		{"initiations with an unknown key", true, func(int) []byte {
			return initiation(t, rnd, to)
		}},
	}
}

// hostileCount is how many messages of a kind are sent.
const hostileCount = 20000

// sendHostile sends messages in turn, and returns the CPU time of the process for each.
func sendHostile(t *testing.T, c *net.UDPConn, to netip.AddrPort, list [][]byte) time.Duration {
	t.Helper()
	before := cpuTime(t)
	for i := range hostileCount {
		if _, err := c.WriteToUDPAddrPort(list[i%len(list)], to); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond)
	return (cpuTime(t) - before) / hostileCount
}

// listenWith opens a socket beside b's device with a receive buffer of some size.
func listenWith(t *testing.T, b *side, buffer int) *net.UDPConn {
	t.Helper()
	c, err := b.ListenPacket("udp", "10.2.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.(*net.UDPConn).SetReadBuffer(buffer)
	return c.(*net.UDPConn)
}

// TestHostileCosts: whatever an attacker without a key sends, it costs less CPU time than one
// multiplication of a handshake, of which an honest one takes half a dozen. It gets no answer, but
// for cookies, which are smaller than what they answer, and no memory is kept.
func TestHostileCosts(t *testing.T) {
	a, b, recorded := recordData(t)
	hostile := listenWith(t, b, 4<<20)
	var answers, cookies atomic.Int64
	go countAnswers(hostile, &cookies, &answers)
	// The buffer of unread is full at once.
	unread := listenWith(t, b, 1).LocalAddr().(*net.UDPAddr).AddrPort()
	unit := multiplication(t)
	device := netip.MustParseAddrPort("10.2.0.1:51820")
	for _, kind := range hostileMessages(t, b.key.Public(), recorded) {
		var list [][]byte
		for i := range 2000 {
			list = append(list, kind.make(i))
		}
		answers.Store(0)
		cookies.Store(0)
		nothing := sendHostile(t, hostile, unread, list)
		before := inUse()
		cost := sendHostile(t, hostile, device, list) - nothing
		kept := inUse() - before
		runtime.KeepAlive(list) // in use before, and after
		t.Logf("%-28s %v for each, %d KiB kept, %d cookies", kind.name, cost, kept>>10,
			cookies.Load())
		if cost > unit {
			t.Errorf("%s: each costs %v, a multiplication %v", kind.name, cost, unit)
		}
		if answers.Load() > 0 || cookies.Load() > hostileCount ||
			!kind.cookies && cookies.Load() > 0 {
			t.Errorf("%s: %d answers and %d cookies to %d messages", kind.name, answers.Load(),
				cookies.Load(), hostileCount)
		}
		if kept > hostileCount*512 {
			t.Errorf("%s: %d bytes are kept", kind.name, kept)
		}
	}
	t.Logf("a multiplication costs %v", unit)
	echo(t, a, b, 100)
	if list, err := b.dev.Peers(); err != nil || list[0].Path.String() != "10.2.0.2:51820" {
		t.Errorf("the path is %+v: %v", list, err)
	}
}
