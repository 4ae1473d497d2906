package rulefile

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func writeList(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReadList(t *testing.T) {
	file := writeList(t, "\ufeff# a list\r\n\n 192.0.2.7 \n10.0.0.0/8 # private\n10.1.2.3/8\n"+
		"1.10.16.0/20 ; SBL256894\n\tfd00::/8\n::1\n;\n2001:db8::1")
	l, err := ReadList(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1.10.16.0/20", "10.0.0.0/8", "192.0.2.7/32", "::1/128", "2001:db8::1/128",
		"fd00::/8"}
	var got []string
	for _, p := range l.Prefixes {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) || l.File != file || l.Seen == "" {
		t.Errorf("%v, %+v", got, l)
	}
	if l, err := ReadList(writeList(t, "")); err != nil || len(l.Prefixes) != 0 {
		t.Errorf("an empty file: %v, %v", l, err)
	}
}

// TestListsThatAreWrong: the error names file and line.
func TestListsThatAreWrong(t *testing.T) {
	for _, line := range []string{"x", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0", "!10.0.0.1",
		"fe80::1%eth0",
		"10.0.0.1-10.0.0.9", "::ffff:10.0.0.1", "::ffff:0.0.0.0/96", "10.0.0.1 7", "10.0.0.0/08",
		strings.Repeat("1", 1<<20)} {
		file := writeList(t, "10.0.0.1\n# comment\n"+line+"\n10.0.0.2\n")
		_, err := ReadList(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+":3: ") || len(err.Error()) > 300 {
			t.Errorf("%.40q: %.300v", line, err)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{fifo, t.TempDir(), "/nonexistent/list", "/dev/zero"} {
		if _, err := ReadList(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	large := writeList(t, "")
	if err := os.Truncate(large, maxListBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadList(large); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

func FuzzList(f *testing.F) {
	f.Add([]byte("10.0.0.0/8\n# x\nfd00::/8 ; y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseList("f", text)
		if err != nil {
			return
		}
		if !slices.IsSortedFunc(all, netip.Prefix.Compare) {
			t.Fatal("not sorted")
		}
		for i, p := range all {
			if !p.IsValid() || p != p.Masked() || i > 0 && all[i-1] == p {
				t.Fatalf("%v of %q", p, text)
			}
		}
	})
}

func BenchmarkReadList(b *testing.B) {
	var text strings.Builder
	for i := range 1 << 20 {
		if i%4 == 0 {
			fmt.Fprintf(&text, "2001:db8:%x:%x::/64\n", i>>16, i&0xffff)
		} else {
			fmt.Fprintf(&text, "%d.%d.%d.0/24\n", i*7>>16&0xff, i*7>>8&0xff, i*7&0xff)
		}
	}
	file := filepath.Join(b.TempDir(), "list")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadList(file); err != nil {
			b.Fatal(err)
		}
	}
}
