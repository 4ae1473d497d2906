package pcap

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
)

func TestWriter(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file, packet.LinkRaw)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{Time: time.Unix(1700000000, 123456789), Data: udp(t, 1), Len: 33, Link: packet.LinkRaw},
		{Time: time.Unix(1<<32-1, 999999999), Data: []byte{}, Len: 9000, Link: packet.LinkRaw},
	}
	for _, rec := range want {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := readAll(file.Bytes())
	if err != nil || len(recs) != 2 || !equal(recs[0], want[0]) || !equal(recs[1], want[1]) {
		t.Errorf("%+v, %v", recs, err)
	}
	for name, rec := range map[string]Record{
		"other link": {Link: packet.LinkEthernet},
		"too long":   {Link: packet.LinkRaw, Data: make([]byte, MaxPacket+1)},
		"too old":    {Link: packet.LinkRaw, Time: time.Unix(-1, 0)},
		"too late":   {Link: packet.LinkRaw, Time: time.Unix(1<<32, 0)},
	} {
		before := file.Len()
		if err := w.Write(rec); err == nil || file.Len() != before {
			t.Errorf("%s: was written: %v", name, err)
		}
	}
	if _, err := NewWriter(io.Discard, 99); err == nil {
		t.Error("a link without link type")
	}
}

func TestNGWriter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	links := []packet.Link{packet.LinkRaw, packet.LinkEthernet, packet.LinkSLL, packet.LinkSLL2,
		packet.LinkNull, packet.LinkLoop}
	names := []string{"", "eth0", "pod:web", strings.Repeat("x", 255)}
	var file bytes.Buffer
	w, err := NewNGWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	var want []Record
	for range 200 {
		data := make([]byte, r.IntN(100))
		rec := Record{
			Time: time.Unix(r.Int64N(1<<33), r.Int64N(1e9)), Data: data, Len: len(data) + r.IntN(3),
			Link:      links[r.IntN(len(links))],
			Interface: names[r.IntN(len(names))], Direction: Direction(r.IntN(3)),
			Comment: strings.Repeat("c", r.IntN(3)*r.IntN(9)),
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		want = append(want, rec)
	}
	recs, err := readAll(file.Bytes())
	if err != nil || len(recs) != len(want) {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	for i := range want {
		if !equal(recs[i], want[i]) {
			t.Errorf("record %d:\ngot  %+v\nwant %+v", i, recs[i], want[i])
		}
	}
	for name, rec := range map[string]Record{
		"no link":      {Link: 99},
		"long name":    {Interface: strings.Repeat("x", 256)},
		"long comment": {Comment: strings.Repeat("x", 65536)},
		"too long":     {Data: make([]byte, MaxPacket+1)},
	} {
		before := file.Len()
		if err := w.Write(rec); err == nil || file.Len() != before {
			t.Errorf("%s: was written: %v", name, err)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrors(t *testing.T) {
	if _, err := NewWriter(fullDisk{}, packet.LinkRaw); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
	if _, err := NewNGWriter(fullDisk{}); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
}

// FuzzReader reads any input. Its records, written as pcapng, must be the same when they are read
// again.
func FuzzReader(f *testing.F) {
	var plain, next bytes.Buffer
	w, err := NewWriter(&plain, packet.LinkEthernet)
	if err != nil {
		f.Fatal(err)
	}
	ng, err := NewNGWriter(&next)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		rec := Record{Time: time.Unix(1700000000, 5), Data: udp(f, uint16(i)),
			Link: packet.LinkEthernet}
		if err := w.Write(rec); err != nil {
			f.Fatal(err)
		}
		rec.Interface, rec.Comment, rec.Direction = "eth0", "a comment", Outbound
		if err := ng.Write(rec); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(plain.Bytes())
	f.Add(next.Bytes())
	for _, order := range orders {
		f.Add(append(section(order),
			block(order, blockInterface, uint16(1), uint16(0), uint32(0),
				option(order, optTSResol, uint8(0x8a)))...))
		f.Add(words(order, uint32(magicNano), uint16(2), uint16(4), uint64(0), uint32(0),
			uint32(101), uint64(0), uint32(4), uint32(4), []byte("abcd")))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) > 2 && file[0] == 0x1f {
			return // no gzip bombs here
		}
		recs, err := readAll(file)
		if err != nil && len(recs) == 0 {
			return
		}
		var again bytes.Buffer
		w, err := NewNGWriter(&again)
		if err != nil {
			t.Fatal(err)
		}
		kept := recs[:0]
		for _, rec := range recs {
			if len(rec.Data) > MaxPacket || rec.Len < len(rec.Data) {
				t.Fatalf("record with %d of %d bytes", len(rec.Data), rec.Len)
			}
			if w.Write(rec) == nil {
				if rec.Time.IsZero() {
					rec.Time = time.Unix(0, 0)
				}
				kept = append(kept, rec)
			}
		}
		got, err := readAll(again.Bytes())
		if err != nil || len(got) != len(kept) {
			t.Fatalf("%d records written, %d read: %v", len(kept), len(got), err)
		}
		for i := range got {
			if !equal(got[i], kept[i]) {
				t.Fatalf("record %d: %+v, written as %+v", i, got[i], kept[i])
			}
		}
	})
}
