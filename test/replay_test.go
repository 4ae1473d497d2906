package test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// replayRules are for the packets of scene.
const replayRules = `
add 1 check-state
add 100 allow tcp from any to me 80 setup keep-state
add 200 allow udp from me to any out keep-state
add 300 count ip from any to any via wan*
add 400 reset tcp from any to me
`

// scene is a capture of the host 10.0.0.1, one packet per line: milliseconds, whether it was sent,
// the packet.
const scene = `
0 in   tcp 10.0.0.5:4000 -> 10.0.0.1:80 flags S seq 100 win 1000
1 out  tcp 10.0.0.1:80 -> 10.0.0.5:4000 flags SA seq 500 ack 101 win 1000
2 in   tcp 10.0.0.5:4000 -> 10.0.0.1:80 flags A seq 101 ack 501 win 1000
3 in   tcp 10.0.0.5:4000 -> 10.0.0.1:80 flags R seq 90000 win 0
4 in   tcp 10.0.0.5:4001 -> 10.0.0.1:81 flags S
5 out  udp 10.0.0.1:5000 -> 10.0.0.7:53
6 in   udp 10.0.0.7:53 -> 10.0.0.1:5000
40000 in udp 10.0.0.7:53 -> 10.0.0.1:5000
40001 in icmp6 fe80::5 -> ff02::1:ff00:1 type 135 ttl 255
`

const sceneText = `packet time            dir iface    verdict  rule reason         what
     1 12:00:00.000000 in  wan0     pass      100 rule           tcp 10.0.0.5:4000 -> 10.0.0.1:80 flags S
     2 12:00:00.001000 out wan0     pass      100 rule           tcp 10.0.0.1:80 -> 10.0.0.5:4000 flags SA
     3 12:00:00.002000 in  wan0     pass      100 rule           tcp 10.0.0.5:4000 -> 10.0.0.1:80 flags A
     4 12:00:00.003000 in  wan0     drop      100 tcp-rst        tcp 10.0.0.5:4000 -> 10.0.0.1:80 flags R
     5 12:00:00.004000 in  wan0     drop      400 rule           tcp 10.0.0.5:4001 -> 10.0.0.1:81 flags S
     6 12:00:00.005000 out wan0     pass      200 rule           udp 10.0.0.1:5000 -> 10.0.0.7:53
     7 12:00:00.006000 in  wan0     pass      200 rule           udp 10.0.0.7:53 -> 10.0.0.1:5000
     8 12:00:40.000000 in  wan0     drop    65535 rule           udp 10.0.0.7:53 -> 10.0.0.1:5000
     9 12:00:40.001000 in  wan0     pass        0 essential      ipv6-icmp fe80::5 -> ff02::1:ff00:1 type 135 code 0

00001        0          0 check-state
00100        3        120 allow tcp from any to me 80 setup keep-state
00200        2         56 allow udp from me to any out keep-state
00300        2         68 count ip from any to any via wan*
00400        1         40 reset tcp from any to me
65535        1         28 deny ip from any to any
decided before or beside the rules: essential 1
decided before or beside the rules: tcp-rst 1
9 packets, 6 passed, 3 dropped, 1 state at the end
`

// records makes the packets of scene, with a link-layer header.
func records(t *testing.T, link packet.Link) []pcap.Record {
	t.Helper()
	var all []pcap.Record
	for line := range strings.Lines(strings.TrimSpace(scene)) {
		fields := strings.Fields(line)
		after, err := time.ParseDuration(fields[0] + "ms")
		if err != nil {
			t.Fatal(err)
		}
		p, b, err := build.ParseText(strings.Join(fields[2:], " "))
		if err != nil {
			t.Fatal(err)
		}
		etherType := uint16(packet.EtherIPv4)
		if p.Version == 6 {
			etherType = packet.EtherIPv6
		}
		out := byte(0)
		if fields[1] == "out" {
			out = 4
		}
		switch link {
		case packet.LinkEthernet:
			b = append(binary.BigEndian.AppendUint16(make([]byte, 12), etherType), b...)
		case packet.LinkSLL:
			b = append(binary.BigEndian.AppendUint16(append([]byte{0, out}, make([]byte, 12)...),
				etherType), b...)
		case packet.LinkSLL2:
			b = append(append(binary.BigEndian.AppendUint16(nil, etherType), 0, 0, 0, 0, 0, 2, 0, 1,
				out, 6, 0, 0, 0, 0, 0, 0, 0, 0), b...)
		}
		all = append(all, pcap.Record{Time: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(after),
			Data: b, Len: len(b), Link: link})
	}
	return all
}

// TestReplay evaluates the same packets from captures of every kind.
func TestReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := filepath.Join(dir, "my.rules")
	if err := os.WriteFile(rules, []byte(replayRules), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]packet.Link{
		"ethernet.pcap": packet.LinkEthernet, "raw.pcap": packet.LinkRaw,
		"cooked1.pcap": packet.LinkSLL, "cooked2.pcap": packet.LinkSLL2,
		"zipped.pcap.gz": packet.LinkEthernet, "ng.pcapng": packet.LinkEthernet,
	} {
		file := filepath.Join(dir, name)
		writeCapture(t, file, records(t, link))
		args := []string{"fw", "replay", "-f", rules, "--me", "10.0.0.1", "--iface", "wan0"}
		if got := run(t, append(args, file)...); got != sceneText {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, sceneText)
		}
		passed := filepath.Join(dir, "passed-"+name)
		run(t, append(args, "-w", passed, file)...)
		if got := readCapture(t, passed); len(got) != 6 ||
			!bytes.Equal(got[3], records(t, link)[5].Data) {
			t.Errorf("%s: %d packets passed into the file, want 6", name, len(got))
		}
	}
}

// TestReplayOfBadCapture: a file that is not a capture leaves nothing behind.
func TestReplayOfBadCapture(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, junk := filepath.Join(dir, "my.rules"), filepath.Join(dir, "junk")
	whole := filepath.Join(dir, "whole.pcap")
	writeCapture(t, whole, records(t, packet.LinkEthernet))
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{rules: replayRules, junk: "this is not a capture",
		whole: string(text[:len(text)-5])} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{junk: "weir: fw replay: ",
		whole: "after packet 8: "} {
		cmd := exec.Command(weir, "fw", "replay", "-j", "-f", rules,
			"-w", filepath.Join(dir, "out.pcap"), file)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %v, %s", file, err, stderr.String())
		}
		var printed struct{ Error string }
		if err := json.Unmarshal(text, &printed); err != nil || printed.Error == "" {
			t.Errorf("%s: JSON %s: %v", file, text, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestReplayOfCutFrames: a frame that is cut in its headers has no verdict, and its missing bytes
// are not made up.
func TestReplayOfCutFrames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, capture := filepath.Join(dir, "my.rules"), filepath.Join(dir, "cut.pcap")
	if err := os.WriteFile(rules, []byte("allow ip from any to any"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := records(t, packet.LinkEthernet)[:3]
	for i, captured := range []int{14 + 18, 14 + 30, 14 + 40} {
		all[i].Data = all[i].Data[:captured]
	}
	writeCapture(t, capture, all)
	passed := filepath.Join(dir, "passed.pcap")
	out := run(t, "fw", "replay", "-f", rules, "-w", passed, capture)
	for _, want := range []string{
		"none        0 cut            32 of 54 bytes, cut in the IP header\n",
		"none        0 cut            44 of 54 bytes, cut in the tcp header\n",
		"00100        1         40 allow ip from any to any\n",
		"packets without a verdict, since the snap length cut their headers: 2\n",
		"3 packets, 1 passed, 0 dropped, 0 states at the end\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if got := readCapture(t, passed); len(got) != 1 {
		t.Errorf("%d packets passed into the file, want 1", len(got))
	}
	watch := exec.Command(weir, "flow", "watch", "--from", capture, "-f", rules)
	stderr, err := watch.CombinedOutput()
	if err != nil || !strings.Contains(string(stderr), "the snap length cut their headers: 2\n") {
		t.Errorf("flow watch: %v, %s", err, stderr)
	}
	var printed struct {
		Verdicts []struct{ Verdict, Reason string }
		Sum      struct{ Packets, Passed, Cut int }
	}
	text := run(t, "fw", "replay", "-j", "-f", rules, capture)
	if err := json.Unmarshal([]byte(text), &printed); err != nil || printed.Sum.Cut != 2 ||
		printed.Sum.Passed != 1 || printed.Verdicts[0].Verdict != "none" ||
		printed.Verdicts[0].Reason != "cut" {
		t.Errorf("%v: %s", err, text)
	}
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(weir, args...).Output()
	if err != nil {
		t.Fatalf("weir %v: %v", args, err)
	}
	return string(out)
}

// writeCapture writes a capture of the kind that its name says.
func writeCapture(t *testing.T, file string, records []pcap.Record) {
	t.Helper()
	var b bytes.Buffer
	var out io.Writer = &b
	zipped := gzip.NewWriter(&b)
	if strings.HasSuffix(file, ".gz") {
		out = zipped
	}
	var write func(pcap.Record) error
	if strings.HasSuffix(file, "ng") {
		w, err := pcap.NewNGWriter(out)
		if err != nil {
			t.Fatal(err)
		}
		write = w.Write
	} else {
		w, err := pcap.NewWriter(out, records[0].Link)
		if err != nil {
			t.Fatal(err)
		}
		write = w.Write
	}
	for _, r := range records {
		if err := write(r); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasSuffix(file, ".gz") {
		if err := zipped.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readCapture returns the frames of a capture.
func readCapture(t *testing.T, file string) (frames [][]byte) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	for err == nil {
		var rec pcap.Record
		if rec, err = r.Next(); err == nil {
			frames = append(frames, bytes.Clone(rec.Data))
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return frames
}

// TestReplayOfManyInterfaces: the engine gets each interface separately, so their number is
// limited.
func TestReplayOfManyInterfaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, capture := filepath.Join(dir, "my.rules"), filepath.Join(dir, "many.pcapng")
	replay := func(interfaces int) (string, error) {
		var file bytes.Buffer
		w, err := pcap.NewNGWriter(&file)
		if err != nil {
			t.Fatal(err)
		}
		one := records(t, packet.LinkEthernet)[0]
		for i := range interfaces {
			one.Interface = fmt.Sprint("if", i)
			if err := w.Write(one); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string][]byte{rules: []byte(replayRules),
			capture: file.Bytes()} {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command(weir, "fw", "replay", "-f", rules, capture).CombinedOutput()
		return string(out), err
	}
	if out, err := replay(1000); err != nil {
		t.Errorf("1,000 interfaces: %v, %d bytes", err, len(out))
	}
	if out, err := replay(1100); err == nil ||
		!strings.Contains(out, "packets of more than 1024 interfaces") {
		t.Errorf("1,100 interfaces: %v, %d bytes", err, len(out))
	}
}
