package test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTableFile: the kernel refuses whom a long list names, and follows a list that was moved into
// place. It keeps what it had where the list is wrong, and has it after a restart.
func TestTableFile(t *testing.T) {
	t.Parallel()
	followList(t, 5000)
}

// TestLongTableFile has as many prefixes as the list of a country.
func TestLongTableFile(t *testing.T) {
	t.Parallel()
	followList(t, 50000)
}

// longList is a list of so many prefixes of both families, none of which is the client's.
func longList(prefixes int) string {
	var text strings.Builder
	text.WriteString("# a country\n\n")
	for i := range prefixes {
		if i%4 == 0 {
			fmt.Fprintf(&text, "2001:db8:%x:%x::/64 ; v6\n", i>>16, i&0xffff)
		} else {
			fmt.Fprintf(&text, "%d.%d.%d.%d/30\n", 20+i>>22, i>>14&0xff, i>>6&0xff, i<<2&0xff)
		}
	}
	return text.String()
}

// followList does it with a list of so many prefixes.
func followList(t *testing.T, listed int) {
	t.Helper()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80)
	text := longList(listed)
	file := p.file("blocked.txt", text)
	rules := p.file("rules", "table blocked create file "+file+`
add 1 deny ip from table(blocked) to any in
add 2 check-state
add 3 allow tcp from any to me 80 setup keep-state
`)
	began := time.Now()
	p.start("--iface", "eth0", "--rules", rules)
	t.Logf("%d prefixes: ready after %v, resident %.0f MB", listed, time.Since(began),
		p.scrape()["process_resident_memory_bytes"]/1e6)
	reach(t, p.client, "http://10.66.0.1/")
	change := func(more, what string, want func() error) {
		t.Helper()
		next := p.file("next.txt", text+more)
		began := time.Now()
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
		eventually(t, what, want)
		t.Logf("%s: after %v", what, time.Since(began))
	}
	refused := func(url string) func() error {
		return func() error {
			if _, err := curl(p.client, url); err == nil {
				return fmt.Errorf("a member is let in")
			}
			return nil
		}
	}
	change("10.66.0.2\nfd66::/64\n", "an address is added", refused("http://10.66.0.1/"))
	refuse(t, p.client, "http://[fd66::1]/")
	change("10.66.0.2\n10.66.0.300\n", "a mistake is shown", func() error {
		if reported := problems(t, p.agentNode); !strings.Contains(reported,
			fmt.Sprintf("%s:%d: \"10.66.0.300\"", file, listed+4)) {
			return fmt.Errorf("problems: %s", reported)
		}
		return nil
	})
	refuse(t, p.client, "http://[fd66::1]/")
	if _, stderr, err := p.try("fw", "table", "blocked", "add", "192.0.2.1"); err == nil ||
		!strings.Contains(stderr, file) {
		t.Errorf("a member is added by hand: %v, %s", err, stderr)
	}
	p.kill()
	p.start("--iface", "eth0", "--rules", rules) // with the content that was good
	refuse(t, p.client, "http://[fd66::1]/")
	change("", "the addresses are removed", func() error {
		_, err := curl(p.client, "http://[fd66::1]/")
		return err
	})
	if out := p.weir("fw", "table", "blocked", "info"); !strings.Contains(out,
		fmt.Sprintf("items: %d\n file: %s\n", listed, file)) {
		t.Errorf("info: %s", out)
	}
	change("fd66::2", "another address is added", refused("http://[fd66::1]/"))
	t.Logf("resident %.0f MB", p.scrape()["process_resident_memory_bytes"]/1e6)
	p.weir("down")
	if left, _ := filepath.Glob(filepath.Join(p.root, "var/lib/weir/*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestLongMillionPrefixes: a table of a million prefixes comes from a file into the kernel and has
// its members, none beside them, and an end to what it costs.
func TestLongMillionPrefixes(t *testing.T) {
	t.Parallel()
	const listed, bound = 1000000, 6e8
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80)
	beside := netip.MustParsePrefix("10.66.0.4/24")
	eth0, err := p.client.Netlink().LinkByName("eth0")
	if err == nil {
		err = p.client.Netlink().AddAddr(eth0.Index, beside)
	}
	if err != nil {
		t.Fatal(err)
	}
	const own = "10.66.0.2/31\nfd66::2\n"
	rules := p.file("rules", "table blocked create file "+
		p.file("blocked.txt", longList(listed-2)+own)+`
add 1 deny ip from table(blocked) to any in
add 2 allow ip from any to any
`)
	began := time.Now()
	p.start("--iface", "eth0", "--rules", rules)
	resident := p.scrape()["process_resident_memory_bytes"]
	t.Logf("ready after %v, resident %.0f MB", time.Since(began), resident/1e6)
	if resident > bound {
		t.Errorf("%.0f bytes are resident, at most %.0f", resident, bound)
	}
	if out := p.weir("fw", "table", "blocked", "info"); !strings.Contains(out,
		fmt.Sprintf("items: %d\n", listed)) {
		t.Errorf("info: %s", out)
	}
	for _, member := range []string{"10.66.0.2", "fd66::2"} {
		url := "http://10.66.0.1/"
		if strings.Contains(member, ":") {
			url = "http://[fd66::1]/"
		}
		if out, err := curl(p.client, "--interface", member, url); err == nil {
			t.Errorf("%s is a member and gets %q", member, out)
		}
	}
	if out, err := get(p.client, "--interface", "10.66.0.4", "http://10.66.0.1/"); err != nil {
		t.Errorf("10.66.0.4 is beside the members: %q, %v", out, err)
	}
	p.weir("down")
}
