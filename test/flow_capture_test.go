package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/observe"
)

// TestCaptureSaysWhy: a capture has every packet of a refused and of an allowed connection with
// rule and verdict, and other programs can read it. A replay of it has the events that the node
// had.
func TestCaptureSaysWhy(t *testing.T) {
	t.Parallel()
	need(t, "curl", "tcpdump")
	p := newPair(t)
	rules := p.file("watched", watchedRules)
	p.start("--iface", "eth0", "--rules", rules)
	events := p.watchUntil(p.counted(150), "tcp")
	p.weir("fw", "zero")
	file := filepath.Join(t.TempDir(), "out.pcapng")
	cmd := p.server.Command(weir, "--root", p.root, "flow", "capture", "-w", file, "tcp")
	var stderr programOutput
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.await(t, "capturing")
	p.allowedConnection(t)
	probe(t, p, 81)
	byRule := map[string]uint16{
		"weir: drop by rule 150, reason rule, hook in recv eth0: deny tcp from any to me 81": 150,
		"weir: pass by rule 100, reason rule, hook":                                          100,
	}
	p.hasCounted(file, byRule)
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil || !strings.Contains(stderr.String(), " 0 left out") {
		t.Errorf("%v %s", err, stderr.String())
	}
	var counters api.Rules
	p.json(&counters, "fw", "show")
	comments := readComments(t, file)
	for comment, number := range byRule {
		for _, r := range counters.Rules {
			if r.Number == number && (countPrefix(comments, comment) != r.Packets ||
				r.Packets == 0) {
				t.Errorf("rule %d counts %d packets; comments: %q", number, r.Packets, comments)
			}
		}
	}
	if out, err := exec.Command("tcpdump", "-nr", file).Output(); err != nil ||
		strings.Count(string(out), "\n") != len(comments) {
		t.Errorf("tcpdump reads %q, %v; %d packets were written", out, err, len(comments))
	}
	var live, again []string
	for _, e := range events() {
		if e.Kind == firewall.EventStart || e.Refused() {
			live = append(live, fmt.Sprint(observe.KindName(e.Kind), e.Proto, e.Src, e.Dst,
				e.Verdict.Rule, e.Recv))
		}
	}
	for _, e := range parse(t, p.weir("flow", "watch", "-j", "--from", file, "-f", rules, "--me",
		"10.66.0.1")) {
		if e.Kind == firewall.EventStart || e.Refused() {
			again = append(again, fmt.Sprint(observe.KindName(e.Kind), e.Proto, e.Src, e.Dst,
				e.Verdict.Rule, e.Recv))
		}
	}
	if len(live) < 2 || !slices.Equal(live, again) {
		t.Errorf("the node has the events\n%s\nthe capture\n%s", strings.Join(live, "\n"),
			strings.Join(again, "\n"))
	}
}

// allowedConnection opens a connection to port 80 of the server, uses it, closes it, and waits for
// its last packet.
func (p *pair) allowedConnection(t *testing.T) {
	t.Helper()
	c := dial(t, p.client, p.server, "10.66.0.1:80")
	if err := c.exchange(); err != nil {
		t.Fatal(err)
	}
	c.dialed.Close()
	if _, err := io.ReadAll(c.accepted); err != nil {
		t.Fatal(err)
	}
	c.accepted.Close()
	eventually(t, "the connection is closed", func() error {
		out, err := p.server.Command("ss", "-Htan", "state", "connected", "sport", "=",
			":80").Output()
		if err == nil && len(out) > 0 {
			err = fmt.Errorf("it is %s", out)
		}
		return err
	})
}

// hasCounted waits until a capture that is under way has as many packets with a comment as the rule
// counts.
func (g *agentNode) hasCounted(file string, byRule map[string]uint16) {
	g.t.Helper()
	eventually(g.t, "the file has what the rules count", func() error {
		var counters api.Rules
		g.json(&counters, "fw", "show")
		for comment, number := range byRule {
			n := uint64(countIn(g.t, file, comment))
			for _, r := range counters.Rules {
				if r.Number == number && r.Packets != n {
					return fmt.Errorf("%d packets of rule %d, which counts %d", n, number,
						r.Packets)
				}
			}
		}
		return nil
	})
}

// TestLongCaptureKeepsItsRate: of a flood only so many frames a second are written, and the others
// are counted as left out.
func TestLongCaptureKeepsItsRate(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("watched", watchedRules))
	file := filepath.Join(t.TempDir(), "rate.pcapng")
	cmd := p.server.Command(weir, "--root", p.root, "flow", "capture", "-w", file, "--rate", "10",
		"udp")
	var stderr programOutput
	cmd.Stderr = &stderr
	done := background(t, cmd)
	stderr.await(t, "capturing")
	c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began, sent := time.Now(), 0
	send := func() (text string) {
		sent++
		text = fmt.Sprintf("datagram %d.", sent)
		c.Write([]byte(text))
		return text
	}
	for range 500 {
		send()
		time.Sleep(time.Millisecond)
	}
	// One that is written claims all that was left out before it.
	eventually(t, "the last one is written", func() error {
		last := send()
		time.Sleep(200 * time.Millisecond)
		if countIn(t, file, last) == 0 {
			return errors.New(last + " is not there")
		}
		return nil
	})
	most := 10 * (2 + int(time.Since(began)/time.Second))
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	written := len(readComments(t, file))
	var claimed, left int
	fmt.Sscanf(stderr.String(), "capturing\n%d frames written, %d left out", &claimed, &left)
	if written == 0 || written > most || claimed != written || written+left != sent {
		t.Errorf("of %d frames %d are written, at most %d are wanted; it says %q", sent, written,
			most, stderr.String())
	}
}

// TestLongCaptureOfTheTunnel: a capture also has what the tunnel's own engine decides, without
// encryption, with the rule that decided. A reader that shares no code with the writer finds the
// comments.
func TestLongCaptureOfTheTunnel(t *testing.T) {
	need(t, "nginx", "curl")
	t.Parallel()
	h := newHosts(t, wireRules+
		"add check-state\nadd 300 deny tcp from any to any 81 out via weir0\n"+
		"add 400 allow tcp from any to any setup keep-state\n",
		wireRules+"add check-state\nadd allow tcp from any to any setup keep-state\n")
	h.meet()
	web, pod := h.right.attach("web")
	nginx(t, web, 80)
	client, _ := h.left.attach("client")
	file := filepath.Join(t.TempDir(), "tunnel.pcapng")
	cmd := h.left.host.Command(weir, "--root", h.left.root, "flow", "capture", "-w", file, "-s",
		"60", "tcp", "via", "weir0")
	var stderr programOutput
	cmd.Stderr = &stderr
	done := background(t, cmd)
	stderr.await(t, "capturing")
	reach(t, client, pageAt(pod.Addrs[0], 80))
	refuse(t, client, pageAt(pod.Addrs[0], 81))
	eventually(t, "the file has both", func() error {
		dropped, passed := countIn(t, file, "weir: drop by"), countIn(t, file, "weir: pass by")
		if dropped == 0 || passed < 6 {
			return fmt.Errorf("%d dropped and %d passed packets", dropped, passed)
		}
		return nil
	})
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	comments := foreignComments(t, file, 60)
	dropped, passed := 0, 0
	for _, c := range comments {
		switch {
		case strings.HasPrefix(c, "weir: drop by rule 300, reason rule, hook out") &&
			strings.Contains(c, "xmit weir0: deny tcp from any to any 81 out via weir0"):
			dropped++
		case strings.HasPrefix(c, "weir: pass by rule 400, reason rule, hook"):
			passed++
		default:
			t.Errorf("comment %q", c)
		}
	}
	if dropped == 0 || passed < 6 {
		t.Errorf("%d dropped and %d passed packets in the tunnel: %q", dropped, passed, comments)
	}
}

// foreignComments reads the comments of a capture's packets: by tshark where it is installed, else
// by hand from the blocks, as draft-ietf-opsawg-pcapng sections 3.1, 3.5 and 4.3 have them. No
// packet may hold more than snap bytes.
func foreignComments(t *testing.T, file string, snap uint32) (all []string) {
	t.Helper()
	if tshark, err := exec.LookPath("tshark"); err == nil {
		out, err := exec.Command(tshark, "-nr", file, "-T", "fields", "-e",
			"frame.comment").Output()
		if err != nil {
			t.Fatalf("tshark: %v", err)
		}
		return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const enhancedPacket, comment = 6, 1
	word := binary.LittleEndian.Uint32
	for len(b) >= 12 {
		kind, size := word(b), word(b[4:])
		if size%4 != 0 || int(size) > len(b) || size < 12 || word(b[size-4:]) != size {
			t.Fatalf("a block of type %d has the lengths %d and %d", kind, size, word(b[size-4:]))
		}
		if kind == enhancedPacket {
			kept := word(b[20:])
			if kept > snap {
				t.Errorf("%d bytes are kept of a packet, at most %d were wanted", kept, snap)
			}
			text := ""
			for o := b[28+(kept+3)/4*4 : size-4]; len(o) >= 4; {
				code, n := binary.LittleEndian.Uint16(o), int(binary.LittleEndian.Uint16(o[2:]))
				if code == comment {
					text = string(o[4 : 4+n])
				}
				o = o[4+(n+3)/4*4:]
			}
			all = append(all, text)
		}
		b = b[size:]
	}
	return all
}

// countIn counts a text in a file that may still grow.
func countIn(t *testing.T, file, text string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte(text))
}

func countPrefix(all []string, prefix string) (n uint64) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func readComments(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec.Comment)
	}
}
