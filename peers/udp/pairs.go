package main

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/weirnet/weir/udp"
)

const (
	buffer = 8 << 20 // of every socket: at the default, half of 512 datagrams are lost silently
	limit  = time.Minute
)

// load is the messages of one operation: the destination of each, and the size of all.
type load struct {
	to   []int // index of the receiving socket, for each message
	size int
}

func (l load) receivers() int {
	n := 0
	for _, i := range l.to {
		n = max(n, i+1)
	}
	return n
}

// share is how many messages go to receiver i.
func (l load) share(i int) int {
	n := 0
	for _, k := range l.to {
		if k == i {
			n++
		}
	}
	return n
}

// payload returns the buffers of an operation's messages, cut from one slab for every contender, as
// a fast program would keep them.
func (l load) payload() func(i int) []byte {
	slab := make([]byte, len(l.to)*l.size)
	return func(i int) []byte { return slab[i*l.size : (i+1)*l.size : (i+1)*l.size] }
}

func listen(config udp.Config) (*udp.Conn, error) {
	config.ReadBuffer, config.WriteBuffer = buffer, buffer
	c, err := udp.Listen("udp4", netip.MustParseAddrPort("127.0.0.1:0"), config)
	if err != nil {
		return nil, err
	}
	read, _, err := c.Buffers()
	if err == nil && read < buffer {
		err = fmt.Errorf("socket buffer is %d bytes: run as root", read)
	}
	return c, err
}

// xnet makes the x/net contender; single sends and reads messages one by one (ReadFrom, WriteTo).
// They are created here only for their buffer sizes.
func xnet(l load, single bool) (func() error, error) {
	sender, sockets := (*ipv4.PacketConn)(nil), []*ipv4.PacketConn{}
	var addrs []net.Addr
	for i := range l.receivers() + 1 {
		pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		if err := forceBuffers(pc); err != nil {
			return nil, err
		}
		pc.SetDeadline(time.Now().Add(limit))
		if i == 0 {
			sender = ipv4.NewPacketConn(pc)
			continue
		}
		sockets, addrs = append(sockets, ipv4.NewPacketConn(pc)), append(addrs, pc.LocalAddr())
	}
	out, in := make([]ipv4.Message, len(l.to)), make([]ipv4.Message, len(l.to))
	payload := l.payload()
	for i := range out {
		out[i] = ipv4.Message{Buffers: [][]byte{payload(i)}, Addr: addrs[l.to[i]]}
		in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 2048)}}
	}
	shares := make([]int, len(sockets))
	for i := range shares {
		shares[i] = l.share(i)
	}
	if single {
		return func() error {
			for i := range out {
				if _, err := sender.WriteTo(out[i].Buffers[0], nil, out[i].Addr); err != nil {
					return err
				}
			}
			for s, want := range shares {
				for range want {
					n, _, _, err := sockets[s].ReadFrom(in[0].Buffers[0])
					if err != nil || n != l.size {
						return fmt.Errorf("read %d bytes: %v", n, err)
					}
				}
			}
			return nil
		}, nil
	}
	return func() error {
		for done := 0; done < len(out); {
			n, err := sender.WriteBatch(out[done:], 0)
			if err != nil {
				return err
			}
			done += n
		}
		for s, want := range shares {
			for got := 0; got < want; {
				n, err := sockets[s].ReadBatch(in[got:want], 0)
				if err != nil {
					return err
				}
				for i := got; i < got+n; i++ {
					if in[i].N != l.size {
						return fmt.Errorf("read %d bytes", in[i].N)
					}
				}
				got += n
			}
		}
		return nil
	}, nil
}

// ours makes the contender of package udp; single passes one message to each call.
func ours(l load, single, offload bool) (func() error, error) {
	config := udp.Config{NoGSO: !offload, GRO: offload}
	sender, err := listen(config)
	if err != nil {
		return nil, err
	}
	sender.SetDeadline(time.Now().Add(limit))
	var sockets []*udp.Conn
	var readers []*udp.Reader
	for range l.receivers() {
		c, err := listen(config)
		if err != nil {
			return nil, err
		}
		c.SetDeadline(time.Now().Add(limit))
		sockets, readers = append(sockets, c), append(readers, c.NewReader(4))
	}
	out, in := make([]udp.Message, len(l.to)), make([]udp.Message, len(l.to))
	payload := l.payload()
	for i := range out {
		out[i] = udp.Message{Buffers: [][]byte{payload(i)}, Addr: sockets[l.to[i]].LocalAddrPort()}
		in[i] = udp.Message{Buffers: [][]byte{make([]byte, 2048)}}
	}
	shares := make([]int, len(sockets))
	for i := range shares {
		shares[i] = l.share(i)
	}
	chunk := len(out)
	if single {
		chunk = 1
	}
	read := func(s, got, want int) (int, error) {
		msgs, err := in, error(nil)
		n := 0
		if offload {
			msgs, err = readers[s].ReadBatch()
			n = len(msgs)
		} else {
			n, err = sockets[s].ReadBatch(in[:min(chunk, want-got)])
		}
		if err != nil {
			return 0, err
		}
		for i := range n {
			if msgs[i].N != l.size {
				return 0, fmt.Errorf("read %d bytes", msgs[i].N)
			}
		}
		return n, nil
	}
	return func() error {
		for at := 0; at < len(out); at += chunk {
			if _, err := sender.WriteBatch(out[at : at+chunk]); err != nil {
				return err
			}
		}
		for s, want := range shares {
			for got := 0; got < want; {
				n, err := read(s, got, want)
				if err != nil {
					return err
				}
				got += n
			}
		}
		return nil
	}, nil
}
