// Command dnsbalancer spreads DNS questions over resolvers: dnsbalancer LISTEN RESOLVER...
//
// Each question goes to the resolver with the fewest open ones. A resolver that is silent keeps its
// open questions for two seconds and gets few new ones meanwhile. Datagrams move in batches, one
// system call for each.
package main

import (
	"log"
	"net/netip"
	"os"
	"time"

	"github.com/weirnet/weir/udp"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: dnsbalancer LISTEN RESOLVER...")
	}
	// An answer has to leave from the address that was asked: PacketInfo says which it is.
	front := must(udp.Listen("udp", must(netip.ParseAddrPort(os.Args[1])),
		udp.Config{PacketInfo: true}))
	var resolvers []*resolver
	for _, address := range os.Args[2:] {
		r := &resolver{conn: must(udp.Dial("udp", must(netip.ParseAddrPort(address)),
			udp.Config{}))}
		resolvers = append(resolvers, r)
		go r.answer(front)
	}
	log.Fatal("dnsbalancer: ", ask(front, resolvers))
}

// ask passes questions to the resolvers, until the socket fails.
func ask(front *udp.Conn, resolvers []*resolver) error {
	msgs := messages()
	batches := make([][]udp.Message, len(resolvers))
	for next := 0; ; {
		n, err := front.ReadBatch(msgs)
		if err != nil {
			return err
		}
		now := time.Now()
		for i := range msgs[:n] {
			if msgs[i].N < headerSize {
				continue
			}
			next++
			k := pick(resolvers, next, now)
			if k >= 0 && resolvers[k].keep(&msgs[i], now) {
				batches[k] = append(batches[k], udp.Message{Buffers: payload(&msgs[i])})
			}
		}
		for k, r := range resolvers {
			send(r.conn, batches[k])
			batches[k] = batches[k][:0]
		}
	}
}

// pick returns the resolver with the fewest open questions, or -1 if all have too many. Of equal
// ones each has its turn.
func pick(resolvers []*resolver, turn int, now time.Time) int {
	at, fewest := -1, maxOpen
	for k := range resolvers {
		k = (k + turn) % len(resolvers)
		if open := resolvers[k].open(now); open < fewest {
			at, fewest = k, open
		}
	}
	return at
}

// messages makes messages with space for any question or answer over UDP.
func messages() []udp.Message {
	msgs := make([]udp.Message, 64)
	for i := range msgs {
		msgs[i].Buffers = [][]byte{make([]byte, 4096)}
	}
	return msgs
}

// send skips what cannot be sent: its client asks again.
func send(conn *udp.Conn, msgs []udp.Message) {
	for len(msgs) > 0 {
		n, err := conn.WriteBatch(msgs)
		if err != nil {
			n++
		}
		msgs = msgs[n:]
	}
}

// payload is what a message has received, as buffers to send.
func payload(m *udp.Message) [][]byte { return [][]byte{m.Payload()} }

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal("dnsbalancer: ", err)
	}
	return v
}
