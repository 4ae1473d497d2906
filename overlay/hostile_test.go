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

// TestHostileCosts: whatever an attacker without a key sends, it costs less CPU time than one
// multiplication of a handshake, of which an honest one takes half a dozen; it gets no answer, but
// for cookies, which are smaller than what they answer; and no memory is kept.
func TestHostileCosts(t *testing.T) {
	var recorded [][]byte
	var full atomic.Bool
	// called by two goroutines, of which one sees what a sends
	a, b := through(t, &middlebox{seen: func(p []byte) {
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
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the middle box saw no data")
		}
	}

	hostile, err := b.ListenPacket("udp", "10.2.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hostile.Close()
	hostile.(*net.UDPConn).SetReadBuffer(4 << 20)
	var answers, cookies atomic.Int64
	go countAnswers(hostile, &cookies, &answers)
	deaf, err := b.ListenPacket("udp", "10.2.0.1:0") // whose buffer is full at once
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	deaf.(*net.UDPConn).SetReadBuffer(1)

	const count = 20000
	rnd := mathrand.NewChaCha8([32]byte{1})
	random := func(kind byte, size int) []byte {
		p := make([]byte, size)
		rnd.Read(p)
		binary.LittleEndian.PutUint32(p, uint32(kind))
		return p
	}
	attack := func(to netip.AddrPort, list [][]byte) time.Duration {
		before := cpuTime(t)
		for i := range count {
			if _, err := hostile.(*net.UDPConn).WriteToUDPAddrPort(list[i%len(list)],
				to); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(300 * time.Millisecond)
		return (cpuTime(t) - before) / count
	}
	unit := multiplication(t)
	device := netip.MustParseAddrPort("10.2.0.1:51820")
	for _, kind := range []struct {
		name    string
		cookies bool
		make    func(i int) []byte
	}{
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
			return initiation(t, rnd, b.key.Public())
		}},
	} {
		var list [][]byte
		for i := range 2000 {
			list = append(list, kind.make(i))
		}
		answers.Store(0)
		cookies.Store(0)
		nothing := attack(deaf.LocalAddr().(*net.UDPAddr).AddrPort(), list)
		before := inUse()
		cost := attack(device, list) - nothing
		kept := inUse() - before
		t.Logf("%-28s %v for each, %d KiB kept, %d cookies", kind.name, cost, kept>>10,
			cookies.Load())
		if cost > unit {
			t.Errorf("%s: each costs %v, a multiplication %v", kind.name, cost, unit)
		}
		if answers.Load() > 0 || cookies.Load() > count || !kind.cookies && cookies.Load() > 0 {
			t.Errorf("%s: %d answers and %d cookies to %d messages", kind.name, answers.Load(),
				cookies.Load(), count)
		}
		if kept > count*512 {
			t.Errorf("%s: %d bytes are kept", kind.name, kept)
		}
	}
	t.Logf("a multiplication costs %v", unit)
	echo(t, a, b, 100)
	if list, err := b.dev.Peers(); err != nil || list[0].Path.String() != "10.2.0.2:51820" {
		t.Errorf("the path is %+v: %v", list, err)
	}
}
