package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// blockSize is the size of a block of a stream: its number first, then bytes that follow from it.
const blockSize = 4096

// block makes the block of a number.
func block(n uint64) []byte {
	b := make([]byte, blockSize)
	binary.BigEndian.PutUint64(b, n)
	r := rand.New(rand.NewPCG(n, 7))
	for i := 8; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
}

// errCorrupt is a block that came back as another.
var errCorrupt = errors.New("a block came back changed")

// stream is a TCP connection that never ends; every block that goes there comes back and is
// compared.
type stream struct {
	work   work
	blocks atomic.Int64

	mu      sync.Mutex
	excused time.Time // guarded by mu; until then it may break: a disturbance names it
	broken  []string  // guarded by mu; how it broke without such a disturbance
}

// excuse lets the stream break until a time.
func (s *stream) excuse(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.After(s.excused) {
		s.excused = until
	}
}

// run opens the stream, again whenever it breaks, until over is closed.
func (s *stream) run(w *testbed, over <-chan struct{}) {
	for {
		err := s.once(w, over)
		if err == nil {
			return
		}
		s.mu.Lock()
		if errors.Is(err, errCorrupt) || time.Now().After(s.excused) {
			s.broken = append(s.broken, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.0"),
				s.work.name, err))
		}
		s.mu.Unlock()
		select {
		case <-over:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// once is one connection of the stream, up to its end.
func (s *stream) once(w *testbed, over <-chan struct{}) error {
	var c net.Conn
	err := s.work.from(w).Do(func() (err error) {
		d := s.work.dialer(keptTimeout)
		c, err = d.Dial("tcp", s.work.addr)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	c.(*net.TCPConn).SetLinger(0)
	back := make([]byte, blockSize)
	for n := uint64(1); ; n++ {
		select {
		case <-over:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		c.SetDeadline(time.Now().Add(keptTimeout))
		there := block(n)
		if _, err := c.Write(there); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, back); err != nil {
			return err
		}
		if !bytes.Equal(there, back) {
			return errCorrupt
		}
		s.blocks.Add(1)
	}
}
