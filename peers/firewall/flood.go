package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

const (
	legitimate = 50   // HTTP requests on their way at any time
	idle       = 3000 // connections that are open during the flood and say nothing
	floodFor   = 2500 * time.Millisecond
)

// flood measures what a flood of SYNs from random sources leaves of a web server.
func (b *bench) flood(n int) error {
	if err := b.prepareFlood(); err != nil {
		return err
	}
	stop, err := b.serveHTTP()
	if err != nil {
		return err
	}
	defer stop()
	l, err := b.server.Listen("tcp4", serverAddr+":81")
	if err != nil {
		return err
	}
	defer l.Close()
	go nstest.Echo(l)
	if err := b.open(firewall.DefaultOptions()); err != nil {
		return err
	}
	if err := b.load(webRules + "add allow tcp from any to me 81 setup keep-state\n"); err != nil {
		return err
	}
	fmt.Printf("### SYN flood from random sources, %d legitimate HTTP slots, %d idle connections\n"+
		"\n"+
		"| SYNs/s | packets per source | | reached, SYNs/s | legitimate requests/s | / none | p99 "+
		"ms | idle connections that survived |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n", legitimate, idle)
	for _, row := range []struct{ rate, each int }{{150000, 1}, {400000, 1}, {150000, 2},
		{150000, 3}} {
		if err := b.floodRow(max(1, n/8), row.rate, row.each); err != nil {
			return err
		}
	}
	fmt.Println()
	return nil
}

// floodRow measures one rate with every contender, n times in random order.
func (b *bench) floodRow(n, rate, each int) error {
	progress(fmt.Sprintf("flood of %d SYNs/s, %d of each source", rate, each))
	got := map[string][]floodResult{}
	modes := []mode{b.none(), b.weir(), b.nft("nft", nftFlood)}
	current := ""
	for i := range modes {
		m := modes[i]
		modes[i].on = func() error { current = m.name; return m.on() }
	}
	if _, err := cycles(n, modes, func() (float64, error) {
		r, err := b.floodOnce(rate, each)
		got[current] = append(got[current], r)
		return r.requests, err
	}); err != nil {
		return err
	}
	middle := func(name string, f func(floodResult) float64) float64 {
		var v []float64
		for _, r := range got[name] {
			v = append(v, f(r))
		}
		return spreadOf(v).mid
	}
	requests := func(r floodResult) float64 { return r.requests }
	for _, m := range modes {
		rate := middle(m.name, requests)
		share, p99 := rate/middle("none", requests), middle(m.name, func(r floodResult) float64 {
			return r.p99
		})
		alive := middle(m.name, func(r floodResult) float64 { return r.alive })
		targets := [3]string{}
		if m.name == "weir" {
			targets[0], targets[2] = " ("+atLeast(share, 1)+")", " ("+atLeast(alive, idle)+")"
			if each == 1 && rate > 0 && got["weir"][0].rate == 150000 {
				targets[1] = " (" + atMost(p99, 10) + ")"
			}
		}
		fmt.Printf("| %d | %d | %s | %.0f | %.0f | %.2f%s | %.1f%s | %.0f%s |\n",
			got[m.name][0].rate, each, m.name,
			middle(m.name, func(r floodResult) float64 {
				return r.reached
			}), rate, share, targets[0], p99, targets[1], alive, targets[2])
	}
	return nil
}

const nftFlood = `table inet f { chain input { type filter hook input priority 0; policy drop;
	ct state established,related accept
	tcp dport { 80, 81 } ct state new accept
	tcp dport 22 ct state new accept
	icmp type echo-request accept
	}
}
`

// floodResult is the result of one segment of a flood.
type floodResult struct {
	rate                          int
	reached, requests, p99, alive float64
}

// floodOnce opens the idle connections, floods, and counts the connections that are left.
func (b *bench) floodOnce(rate, each int) (floodResult, error) {
	conns, err := b.openIdle()
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	if err != nil {
		return floodResult{}, err
	}
	r := floodResult{rate: rate}
	end := time.Now().Add(floodFor)
	flooded := make(chan error, 1)
	go func() {
		flooded <- b.client.Do(func() error {
			if err := pin(1); err != nil {
				return err
			}
			n, err := b.sendSYNs(rate, each, end)
			r.reached = float64(n) / floodFor.Seconds()
			return err
		})
	}()
	// The first part is not measured: tables fill.
	time.Sleep(floodFor / 4)
	took, err := b.requestUntil(end)
	if err := errors.Join(err, <-flooded); err != nil {
		return r, err
	}
	r.requests = float64(len(took)) / (floodFor * 3 / 4).Seconds()
	if slices.Sort(took); len(took) > 0 {
		r.p99 = ms(took[len(took)*99/100])
	}
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(3 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			continue
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			r.alive++
		}
	}
	return r, nil
}

// requestUntil keeps the legitimate slots busy, and returns how long each request that succeeded
// took.
func (b *bench) requestUntil(end time.Time) ([]time.Duration, error) {
	var all []time.Duration
	c := b.gather(legitimate, func(began, now time.Time) {
		if now.Before(end) {
			all = append(all, now.Sub(began))
		}
	})
	time.Sleep(time.Until(end))
	return all, c.close()
}

func (b *bench) openIdle() ([]net.Conn, error) {
	conns := make([]net.Conn, idle)
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < len(conns) && errs[w] == nil; i += len(errs) {
				conns[i], errs[w] = dial(b.client, serverAddr+":81")
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(conns, func(c net.Conn) bool { return c == nil }), errors.Join(errs...)
}

// prepareFlood lets the server answer addresses that no host has, as it would on the Internet.
func (b *bench) prepareFlood() error {
	if err := raiseFiles(); err != nil {
		return err
	}
	sysctls := errors.Join(b.server.SetSysctl("net.ipv4.conf.all.rp_filter", "0"),
		b.server.SetSysctl("net.ipv4.conf.eth0.rp_filter", "0"),
		b.server.SetSysctl("net.ipv4.tcp_max_syn_backlog", "4096"))
	if out, err := b.server.Command("ip", "route", "replace", "11.0.0.0/8", "via", "10.99.0.1",
		"dev", "eth0").CombinedOutput(); err != nil {
		return errors.Join(sysctls, fmt.Errorf("ip route: %w: %s", err, out))
	}
	return sysctls
}

// raiseFiles raises the limit of open files as far as it goes.
func raiseFiles() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return err
	}
	r.Cur = r.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
}

// sendSYNs sends SYNs at a rate, `each` from every source, until a time, and returns how many. It
// must run in the client's namespace.
func (b *bench) sendSYNs(rate, each int, end time.Time) (int, error) {
	s, err := newSender(b.from, b.to)
	if err != nil {
		return 0, err
	}
	defer s.close()
	for k := range s.frames {
		f := s.frames[k][:]
		binary.BigEndian.PutUint16(f[16:], 40)
		f[23] = unix.IPPROTO_TCP
		clear(f[34:])
		binary.BigEndian.PutUint16(f[36:], 80)
		f[46], f[47] = 5<<4, 2
		binary.BigEndian.PutUint16(f[48:], 64240)
	}
	n, left := 0, 0
	var source, port, seq uint32
	began := time.Now()
	for now := began; now.Before(end); now = time.Now() {
		if due := int(now.Sub(began).Seconds() * float64(rate)); n+batch > due {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		for k := range s.frames {
			if left == 0 {
				source, port, seq, left = 11<<24|rand.Uint32()&0xffffff, 1024+rand.Uint32N(60000),
					rand.Uint32(), each
			}
			left--
			setSYN(s.frames[k][:], source, uint16(port), seq)
		}
		sent, err := s.batch()
		if err != nil {
			return n, err
		}
		n += sent
	}
	return n, nil
}

// setSYN writes source and sequence number into a frame, and both checksums.
func setSYN(f []byte, source uint32, port uint16, seq uint32) {
	binary.BigEndian.PutUint32(f[26:], source)
	binary.BigEndian.PutUint16(f[34:], port)
	binary.BigEndian.PutUint32(f[38:], seq)
	f[24], f[25], f[50], f[51] = 0, 0, 0, 0
	binary.BigEndian.PutUint16(f[24:], checksum(f[14:34], 0))
	binary.BigEndian.PutUint16(f[50:], checksum(f[26:54], unix.IPPROTO_TCP+20))
}

func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum&0xffff + sum>>16)
}
