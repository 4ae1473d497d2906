package main

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

const webRules = "add 1 check-state\nadd allow tcp from any to me 80 setup keep-state\n"

const nftWeb = `table inet f { chain input { type filter hook input priority 0; policy drop;
	ct state established,related accept
	tcp dport 80 ct state new accept
	tcp dport 22 ct state new accept
	icmp type echo-request accept
	}
}
`

// tcpStream measures the throughput of one established connection.
func (b *bench) tcpStream(n int) error {
	progress("tcp stream")
	l, err := b.server.Listen("tcp4", serverAddr+":80")
	if err != nil {
		return err
	}
	defer l.Close()
	var got atomic.Int64
	go drain(l, &got)
	if err := b.load(webRules); err != nil {
		return err
	}
	// The modes forget the connection when they go, so each segment has one of its own.
	r, err := cycles(n, []mode{b.none(), b.weir(), b.nft("nft", nftWeb)}, func() (float64, error) {
		c, err := dial(b.client, serverAddr+":80")
		if err != nil {
			return 0, err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		buf := make([]byte, 1<<18)
		if err := pour(c, buf, 30*time.Millisecond); err != nil {
			return 0, err
		}
		begin, was := time.Now(), got.Load()
		if err := pour(c, buf, 250*time.Millisecond); err != nil {
			return 0, err
		}
		return float64(got.Load()-was) / time.Since(begin).Seconds(), nil
	})
	if err != nil {
		return err
	}
	weir, nft := spreadOf(ratios(r["weir"], r["none"])), spreadOf(ratios(r["nft"], r["none"]))
	fmt.Printf("### One TCP stream\n\n| none, Gbit/s | weir / none | target | nft / none |\n"+
		"| --- | --- | --- | --- |\n| %.1f | %v | %s | %v |\n\n",
		spreadOf(r["none"]).mid*8/1e9, weir, atLeast(weir.mid, 0.99), nft)
	return nil
}

func pour(c net.Conn, buf []byte, d time.Duration) error {
	for stop := time.Now().Add(d); time.Now().Before(stop); {
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// drain reads all connections to their ends.
func drain(l net.Listener, got *atomic.Int64) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 1<<18)
			for {
				n, err := c.Read(buf)
				got.Add(int64(n))
				if err == io.EOF || err != nil {
					return
				}
			}
		}()
	}
}
