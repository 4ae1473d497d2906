package udp_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/weirnet/weir/udp"
)

func Example() {
	server, err := udp.Listen("udp4", netip.MustParseAddrPort("127.0.0.1:0"), udp.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	out := []udp.Message{
		{Buffers: [][]byte{[]byte("hello, ")}, Addr: server.LocalAddrPort()},
		{Buffers: [][]byte{[]byte("batches")}, Addr: server.LocalAddrPort()},
	}
	if _, err := server.WriteBatch(out); err != nil { // to itself
		log.Fatal(err)
	}
	in := []udp.Message{{Buffers: [][]byte{make([]byte, 1500)}},
		{Buffers: [][]byte{make([]byte, 1500)}}}
	n, err := server.ReadBatch(in)
	if err != nil {
		log.Fatal(err)
	}
	for i := range n {
		fmt.Printf("%s", in[i].Payload())
	}
	// Output: hello, batches
}
