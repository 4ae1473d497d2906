package pcap

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// tcpdump runs tcpdump on a file given on standard input.
func tcpdump(t *testing.T, file []byte, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath("tcpdump")
	if err != nil {
		if os.Getenv("WEIR_CI") != "" {
			t.Fatal("tcpdump is not installed: apt-get install tcpdump")
		}
		t.Skip("tcpdump is not installed: apt-get install tcpdump")
	}
	cmd := exec.Command(path, append([]string{"-nn", "-r", "-"}, args...)...)
	cmd.Stdin = bytes.NewReader(file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tcpdump: %v: %s", err, &stderr)
	}
	return out
}

// zoo returns one packet of each kind that the builder makes.
func zoo(t *testing.T) []Record {
	t.Helper()
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	v4 := build.IPv4{Src: src, Dst: dst, ID: 7}
	v6 := build.IPv6{Src: netip.MustParseAddr("2001:db8::1"),
		Dst: netip.MustParseAddr("2001:db8::2"), Class: 3, Label: 5}
	tcp := build.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, Flags: packet.FlagSYN, Window: 9000,
		Options: []byte{2, 4, 5, 180, 1, 3, 3, 7}}
	udp := build.UDP{SrcPort: 4000, DstPort: 9}
	data := build.Data("some data")
	var recs []Record
	for _, layers := range [][]build.Layer{
		{v4, tcp, data}, {v4, udp, data}, {v4, build.UDPLite{SrcPort: 1, DstPort: 2}, data},
		{v4, build.SCTP{SrcPort: 1, DstPort: 2, VTag: 3}},
		{v4, build.ICMP{Type: 8, Rest: 5<<16 | 1}, data},
		{v4, build.IGMP{Type: 0x16, Group: netip.MustParseAddr("224.0.0.9")}},
		{v4, build.GRE{}, v4, udp, data}, {v4, build.ESP{SPI: 1, Seq: 2}, data},
		{build.VLAN{TCI: 5}, v4, udp, data},
		{v6, tcp, data}, {v6, udp, data}, {v6, build.ICMPv6{Type: 128, Rest: 5<<16 | 1}, data},
		{v6, build.HopByHop{Options: build.RouterAlert()}, build.Destination{}, udp, data},
		{v6, build.Fragment{ID: 9}, tcp},
		{v6, build.AH{SPI: 1, Seq: 2, ICV: make([]byte, 12)}, udp},
		{build.VLAN{TPID: packet.EtherQinQ, TCI: 5}, build.VLAN{TCI: 6}, v6, udp, data},
	} {
		b, err := build.Packet(append([]build.Layer{build.Ethernet{Dst: [6]byte{2, 0, 0, 0, 0, 1},
			Src: [6]byte{2, 0, 0, 0, 0, 2}}}, layers...)...)
		if err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1700000000, int64(len(recs))*1000)
		recs = append(recs, Record{Time: when, Data: b, Len: len(b), Link: packet.LinkEthernet})
	}
	return recs
}

// TestTcpdumpReads checks the files, the builder's packets and their checksums with tcpdump.
func TestTcpdumpReads(t *testing.T) {
	recs := zoo(t)
	var plain, next bytes.Buffer
	w, err := NewWriter(&plain, packet.LinkEthernet)
	if err != nil {
		t.Fatal(err)
	}
	ng, err := NewNGWriter(&next)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		rec.Interface, rec.Comment = "eth0", "comment"
		if err := ng.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	wrong := regexp.MustCompile(`(?i)bad|incorrect|wrong|trunc|\[\|`)
	for name, file := range map[string][]byte{"pcap": plain.Bytes(), "pcapng": next.Bytes()} {
		text := string(tcpdump(t, file, "-vv", "-tt", "-e"))
		if m := wrong.FindString(text); m != "" {
			t.Errorf("%s: tcpdump complains of %q:\n%s", name, m, text)
		}
		if n := strings.Count(text, "\n1700000000.0000") + 1; n != len(recs) {
			t.Errorf("%s: tcpdump sees %d packets, want %d", name, n, len(recs))
		}
		for _, want := range []string{"cksum 0x", "(correct)", "udp sum ok", "icmp6 sum ok",
			"echo request, id 5, seq 1", "vlan 5", "vlan 6", "wscale 7",
			"igmp v2 report 224.0.0.9"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: tcpdump does not say %q:\n%s", name, want, text)
			}
		}
	}
}

// TestTcpdumpWrites reads files of tcpdump, with micro- and nanoseconds.
func TestTcpdumpWrites(t *testing.T) {
	recs := zoo(t)
	var plain bytes.Buffer
	w, err := NewWriter(&plain, packet.LinkEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	for _, precision := range []string{"micro", "nano"} {
		file := tcpdump(t, plain.Bytes(), "-w", "-", "--time-stamp-precision="+precision)
		got, err := readAll(file)
		if err != nil || len(got) != len(recs) {
			t.Fatalf("%s: %d records, %v", precision, len(got), err)
		}
		for i := range recs {
			if !equal(got[i], recs[i]) {
				t.Errorf("%s: record %d: %+v, want %+v", precision, i, got[i], recs[i])
			}
		}
	}
}
