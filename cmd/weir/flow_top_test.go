package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirnet/weir/agent/api"
)

func someTop() *api.Top {
	return &api.Top{
		States: 12, StatesMax: 100, Refused: api.Count{Packets: 99}, Others: api.Count{Packets: 4},
		Talkers: []api.Talker{
			{Proto: "tcp", Src: "10.0.0.1", SrcName: "evil\x1b[2J\u202e",
				Dst: "2001:db8:1234:5678:9abc:def0:1234:5678", Port: 443, States: 7, Bytes: 1 << 40,
				Rate: 1},
			{Proto: "udp", Src: "10.0.0.2", Dst: "10.0.0.9", Port: 53, States: 1, Bytes: 5,
				Rate: 1234567},
		},
		Refusals: []api.Refusals{{Proto: "tcp", Src: "10.0.0.3", Dst: "10.0.0.9", Port: 81,
			Rule: 150, Reason: "rule", Packets: 95}},
	}
}

func TestTopFitsAndEscapes(t *testing.T) {
	for _, width := range []int{80, 60, 200} {
		var b bytes.Buffer
		v := topView{sort: "rate"}
		v.show(&b, someTop(), width, 20)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns on a terminal of %d: %s", n, width, line)
			}
			if strings.ContainsAny(line, "\x1b\u202e") {
				t.Errorf("a name controls the terminal: %q", line)
			}
		}
		for _, want := range []string{"refused 99 packets", "udp", "1.2M", "150", "others"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%d columns: no %q in\n%s", width, want, b.String())
			}
		}
	}
}

func TestTopKeys(t *testing.T) {
	v := topView{sort: "rate"}
	first := func() string {
		var b bytes.Buffer
		v.show(&b, someTop(), 80, 1)
		return strings.Fields(strings.Split(b.String(), "\n")[3])[0]
	}
	if first() != "udp" {
		t.Error("the highest rate is not first")
	}
	for _, k := range "b" {
		v.key(byte(k))
	}
	if v.sort != "bytes" || first() != "tcp" {
		t.Errorf("b sorts by %s, first is %s", v.sort, first())
	}
	for _, k := range "/10.0.0.2q\r" {
		if v.key(byte(k)) {
			t.Fatal("q ends the view while a word is typed")
		}
	}
	v.key('/')
	for _, k := range "10.0.0.2\r" {
		v.key(byte(k))
	}
	if v.word != "10.0.0.2" || first() != "udp" {
		t.Errorf("filter %q, first is %s", v.word, first())
	}
	if v.key(' '); !v.paused {
		t.Error("space does not pause")
	}
	if !v.key('q') {
		t.Error("q does not end")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if f := v.frame(someTop(), null, 0); strings.Count(f, "\x1b[K") != strings.Count(f, "\n")+1 ||
		!strings.HasSuffix(f, "\x1b[J") || !strings.Contains(f, "PAUSED") {
		t.Errorf("a frame does not erase what was there: %q", f)
	}
}
