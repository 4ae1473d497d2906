package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/udp"
)

// server answers questions with its letter.
type server struct {
	address string
	asked   atomic.Int64
}

func serve(t *testing.T, letter byte) *server {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &server{address: conn.LocalAddr().String()}
	go func() {
		for buf := make([]byte, 4096); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			s.asked.Add(1)
			conn.WriteTo(append(buf[:n:n], letter), from)
		}
	}()
	return s
}

// balancer starts one on the loopback and returns its address.
func balancer(t *testing.T, servers ...*server) string {
	local := netip.MustParseAddrPort("127.0.0.1:0")
	front, err := udp.Listen("udp", local, udp.Config{PacketInfo: true})
	if err != nil {
		t.Fatal(err)
	}
	var resolvers []*resolver
	for _, s := range servers {
		conn, err := udp.Dial("udp", netip.MustParseAddrPort(s.address), udp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := &resolver{conn: conn}
		resolvers = append(resolvers, r)
		go r.answer(front)
		t.Cleanup(func() { conn.Close() })
	}
	go ask(front, resolvers)
	t.Cleanup(func() { front.Close() })
	return front.LocalAddrPort().String()
}

// query asks a question until it is answered, as resolvers of hosts do: on a busy machine an answer
// may come after the balancer has given the question up.
func query(conn net.Conn, client, number int) error {
	head := append(make([]byte, headerSize), fmt.Sprintf("client %d ", client)...)
	text := fmt.Appendf(head, "question %d.", number)
	binary.BigEndian.PutUint16(text, uint16(number))
	buf := make([]byte, 4096)
	for range 20 {
		if _, err := conn.Write(text); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(2 * queryTimeout))
		for {
			n, err := conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				return err
			}
			if !bytes.HasPrefix(buf[headerSize:n], head[headerSize:]) {
				return fmt.Errorf("client %d received %q", client, buf[:n])
			}
			if bytes.Equal(buf[:n-1], text) {
				return nil // others answer an earlier transmission
			}
		}
	}
	return fmt.Errorf("no answer to %q", text)
}

// TestAnswersFindTheirClients: clients that use the same ids receive the answers to their own
// questions, and every resolver is asked.
func TestAnswersFindTheirClients(t *testing.T) {
	servers := []*server{serve(t, 'a'), serve(t, 'b'), serve(t, 'c')}
	address := balancer(t, servers...)
	done := make(chan error)
	const clients, questions = 8, 60
	for c := range clients {
		go func() {
			conn, err := net.Dial("udp", address)
			for q := 0; err == nil && q < questions; q++ {
				err = query(conn, c, q)
			}
			done <- err
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for i, s := range servers {
		if s.asked.Load() == 0 {
			t.Errorf("resolver %d got none of %d questions", i, clients*questions)
		}
	}
}

// TestResolversTakeTurns: of resolvers that answer at once each gets its part.
func TestResolversTakeTurns(t *testing.T) {
	resolvers := []*resolver{{}, {}, {}}
	asked := make([]int, len(resolvers))
	now := time.Now()
	for q := range 300 {
		k := pick(resolvers, q, now)
		asked[k]++
		m := udp.Message{Buffers: [][]byte{make([]byte, headerSize)}, N: headerSize}
		if !resolvers[k].keep(&m, now) {
			t.Fatalf("question %d has no id", q)
		}
		if _, ok := resolvers[k].take(binary.BigEndian.Uint16(m.Payload())); !ok {
			t.Fatalf("question %d is not open", q)
		}
	}
	if !slices.Equal(asked, []int{100, 100, 100}) {
		t.Errorf("the resolvers got %d questions", asked)
	}
}

// TestSilentResolver: one that stops costs one question in two seconds, not a third of all.
func TestSilentResolver(t *testing.T) {
	resolvers := []*resolver{{}, {}, {}}
	now, lost := time.Now(), 0
	const questions, pace = 1000, 10 * time.Millisecond
	for q := range questions {
		now = now.Add(pace)
		k := pick(resolvers, q, now)
		m := udp.Message{Buffers: [][]byte{make([]byte, headerSize)}, N: headerSize}
		if k < 0 || !resolvers[k].keep(&m, now) {
			t.Fatalf("question %d goes to resolver %d", q, k)
		}
		if k == 1 {
			lost++ // it never answers
		} else if _, ok := resolvers[k].take(binary.BigEndian.Uint16(m.Payload())); !ok {
			t.Fatalf("question %d is not open", q)
		}
	}
	if most := 1 + int(questions*pace/queryTimeout); lost == 0 || lost > most {
		t.Errorf("%d of %d questions went to the silent one, at most %d may", lost, questions, most)
	}
}

// TestForgedAnswer: an answer with an id that no question has, or a second one, reaches no client.
func TestForgedAnswer(t *testing.T) {
	r, now := &resolver{}, time.Now()
	for i := range 1000 {
		m := udp.Message{Buffers: [][]byte{make([]byte, headerSize)}, N: headerSize}
		if !r.keep(&m, now) {
			t.Fatalf("question %d has no id", i)
		}
		id := binary.BigEndian.Uint16(m.Payload())
		if _, ok := r.take(id); !ok {
			t.Fatal("the answer finds no question")
		}
		if _, ok := r.take(id); ok {
			t.Fatal("a second answer finds a question")
		}
	}
	for range 100 {
		m := udp.Message{Buffers: [][]byte{make([]byte, headerSize)}, N: headerSize}
		r.keep(&m, now)
	}
	if n := r.open(now); n != 100 {
		t.Errorf("%d questions are open, want 100", n)
	}
	if n := r.open(now.Add(queryTimeout)); n != 0 || len(r.order) != 0 {
		t.Errorf("%d questions are open after their time, %d in order", n, len(r.order))
	}
}
