package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

func dial(n *nstest.Node, to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return n.DialContext(ctx, "tcp", to)
}

// serveHTTP starts nginx and returns how to stop it.
func (b *bench) serveHTTP() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "weir-bench")
	if err != nil {
		return nil, err
	}
	server, err := b.startNginx(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	b.nginx = server.Process.Pid
	return func() {
		// Not SIGKILL: workers without their master would continue, and share the port with those
		// of the next.
		server.Process.Signal(unix.SIGTERM)
		server.Wait()
		os.RemoveAll(dir)
	}, nil
}

// httpRows measures nginx with one request of 1 KB per connection: few and many at once, and beside
// idle states.
func (b *bench) httpRows(n int) error {
	if err := raiseFiles(); err != nil {
		return err
	}
	for _, row := range []struct{ concurrent, idle int }{{1000, 0}, {1000, 100000}, {30000, 0}} {
		if err := b.http(n, row.concurrent, row.idle); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) http(n, concurrent, idle int) (err error) {
	progress(fmt.Sprintf("http, %d concurrent, %d idle states", concurrent, idle))
	stopNginx, err := b.serveHTTP()
	if err != nil {
		return err
	}
	defer stopNginx()
	o := firewall.DefaultOptions()
	nftRules := nftWeb
	if idle > 0 { // long-lived UDP states, one way
		nftRules = strings.Replace(nftWeb, "icmp", "udp dport 9 ct state new accept\n\ticmp", 1)
		o.MaxHalfOpen, o.MaxPerSource, o.Timeouts.UDP = o.MaxStates, 0, time.Hour
	}
	if err := b.open(o); err != nil {
		return err
	}
	if err := b.load(webRules + "add allow udp from any to me 9 keep-state\n"); err != nil {
		return err
	}
	if err := b.split(); err != nil {
		return err
	}
	// With many connections open each takes seconds, and switching shakes all of them.
	settle, segment := 200*time.Millisecond, 400*time.Millisecond
	if concurrent > 1000 {
		settle, segment = 3*time.Second, 2*time.Second
	}
	load := b.gather(concurrent, nil)
	defer func() { err = errors.Join(err, load.close()) }()
	time.Sleep(2 * settle)
	var perRequest = map[string][]float64{}
	modes := []mode{b.none(), b.weirAdopting(), b.nft("nft", nftRules)}
	current := ""
	for i := range modes {
		m := modes[i]
		modes[i].on = func() error { current = m.name; return m.on() }
	}
	r, err := cycles(n, modes, func() (float64, error) {
		if idle > 0 {
			if err := b.fill(uint32(idle)); err != nil {
				return 0, err
			}
		}
		time.Sleep(settle)
		cpu, err := b.serverTime()
		if err != nil {
			return 0, err
		}
		begin, was := time.Now(), load.done.Load()
		time.Sleep(segment)
		took, done := time.Since(begin), float64(load.done.Load()-was)
		after, err := b.serverTime()
		perRequest[current] = append(perRequest[current], (after-cpu)/max(1, done))
		return done / took.Seconds(), err
	})
	if err != nil {
		return err
	}
	weir, nft := spreadOf(ratios(r["weir"], r["none"])), spreadOf(ratios(r["nft"], r["none"]))
	weirCPU, nftCPU := spreadOf(ratios(perRequest["weir"], perRequest["none"])),
		spreadOf(ratios(perRequest["nft"], perRequest["none"]))
	fmt.Printf("### HTTP, nginx, 1 KB, one request per connection, %d concurrent, %d idle states\n"+
		"\n"+
		"| | none | weir / none | target | nft / none |\n| --- | --- | --- | --- | --- |\n"+
		"| requests/s | %.0f | %v | %s | %v |\n"+
		"| server CPU per request | %.1f us | %v | %s | %v |\n\n%d requests failed.\n\n",
		concurrent, idle, spreadOf(r["none"]).mid, weir, atLeast(weir.mid, 0.99), nft,
		spreadOf(perRequest["none"]).mid/1e3, weirCPU, atMost(weirCPU.mid,
			1.03), nftCPU, load.failed.Load())
	return nil
}

// fill makes one UDP state for each of n flows.
func (b *bench) fill(n uint32) error {
	return b.client.Do(func() error {
		s, err := newSender(b.from, b.to)
		if err != nil {
			return err
		}
		defer s.close()
		_, err = s.rate(0, n, time.Duration(n)*3*time.Microsecond)
		return err
	})
}

// sustained keeps the server at its full rate for a minute, with the default sizes: nothing may be
// refused.
func (b *bench) sustained(int) error {
	const minute = 60 * time.Second
	progress("a minute at full rate")
	stopNginx, err := b.serveHTTP()
	if err != nil {
		return err
	}
	defer stopNginx()
	if err := b.split(); err != nil {
		return err
	}
	if err := b.open(firewall.DefaultOptions()); err != nil {
		return err
	}
	if err := b.load(webRules); err != nil {
		return err
	}
	weir := b.weir()
	if err := weir.on(); err != nil {
		return err
	}
	defer weir.off()
	load := b.gather(1000, nil)
	time.Sleep(minute)
	if err := load.close(); err != nil {
		return err
	}
	refused := uint64(0)
	decided, err := b.engine.Decisions()
	if err != nil {
		return err
	}
	for d, n := range decided {
		if d.Reason == firewall.ReasonStatesFull || d.Reason == firewall.ReasonHalfOpenFull ||
			d.Reason == firewall.ReasonHalfOpenSource {
			refused += n.Packets
		}
	}
	fmt.Printf("### HTTP at full rate for %v, 1000 concurrent, default sizes\n\n"+
		"| requests/s | failed | refused for want of space | target |\n| --- | --- | --- | --- |\n"+
		"| %.0f | %d | %d | %s |\n\n", minute, float64(load.done.Load())/minute.Seconds(),
		load.failed.Load(), refused, atMost(float64(refused), 0.5))
	return nil
}

// request makes one connection for one file.
func (b *bench) request() error {
	c, err := dial(b.client, serverAddr+":80")
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	request := "GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	if _, err := c.Write([]byte(request)); err != nil {
		return err
	}
	all, err := io.ReadAll(c)
	if err == nil && len(all) < 1024 {
		err = errors.New("a short answer")
	}
	return err
}

func (b *bench) startNginx(dir string) (*nstest.Cmd, error) {
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process on; worker_processes 2; pid %[1]s/pid; error_log %[1]s/error.log; user root;
worker_rlimit_nofile 40000; events { worker_connections 19000; multi_accept on; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_timeout 0; open_file_cache max=10;
server { listen 80 backlog=65535 reuseport; root %[1]s; } }
`, dir)
	if err := errors.Join(os.WriteFile(conf, []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1024), 0o644),
		os.Chmod(dir, 0o755), b.server.SetSysctl("net.core.somaxconn", "65535")); err != nil {
		return nil, err
	}
	c := b.server.Command("nginx", "-c", conf, "-p", dir)
	if err := c.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		if b.request() == nil {
			return c, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.Process.Kill()
	log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
	return nil, fmt.Errorf("nginx does not answer: %s", log)
}
