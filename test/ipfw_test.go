package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ipfwScripts are run one after another; each has an output and an exit status.
var ipfwScripts = []struct {
	script, want string
	code         int
}{
	{"ipfw list", "65535 allow ip from any to any\n", 0},
	{`set -e
fwcmd="ipfw -q"
$fwcmd -f flush
$fwcmd add 100 pass all from any to any via lo0
$fwcmd add 200 deny all from any to 127.0.0.0/8
$fwcmd table 13 flush
$fwcmd table 13 add 10.0.0.0/8
$fwcmd add deny all from any to "table(13)" via em0
$fwcmd add pass icmp from any to me icmptypes 8 keep-state
$fwcmd add 65000 pass all from any to any`, "", 0},
	{"ipfw add 64000 deny log udp from any to any 520 in",
		"64000 deny log udp from any to any 520 in\n", 0},
	{"ipfw list | grep -c ^00", "4\n", 0},
	{"ipfw show | grep '^00100 ' | cut -d' ' -f1", "00100\n", 0},
	{"ipfw show 100 | awk '{print $4, $5}'", "allow ip\n", 0},
	{"ipfw list 200 400", `00200 deny ip from any to 127.0.0.0/8
00400 allow icmp from any to me icmptypes 8 keep-state :default
`, 0},
	{"ipfw table 13 list; ipfw table all list",
		"10.0.0.0/8 0\n--- table(13), set(0) ---\n10.0.0.0/8 0\n", 0},
	{"ipfw table 13 add 192.0.2.0/24 7; ipfw -i table 13 list",
		"added: 192.0.2.0/24 7\n10.0.0.0/8 0.0.0.0\n192.0.2.0/24 0.0.0.7\n", 0},
	{"ipfw -q table 13 delete 192.0.2.9", "", 0},
	{"ipfw list 7", "ipfw: rule 7 does not exist\n", 69},
	{"ipfw delete 7 64000 2>/dev/null; echo $?; ipfw -f -q delete 7", "69\n", 0},
	{"ipfw list 64000", "ipfw: rule 64000 does not exist\n", 69},
	{"ipfw -q set disable 5 && ipfw -q add 500 set 5 deny tcp from any to any && " +
		"ipfw -S list 500", "# DISABLED 00500 set 5 deny tcp from any to any\n", 0},
	{"ipfw set show", "disable 5 enable 0 1 2 3 4 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 " +
		"21 22 23 24 25 26 27 28 29 30\n", 0},
	{"ipfw set 5 delete 500; ipfw zero; ipfw zero 100 200",
		"Accounting cleared.\nEntry 100 cleared.\nEntry 200 cleared.\n", 0},
	{"ipfw pipe 1 config bw 1Mbit/s burst 5K && ipfw pipe 2 config bw 64KByte/s mask src-ip " +
		"0xff && ipfw add 600 pipe 1 udp from any to any && ipfw pipe show",
		"00600 pipe 1 udp from any to any\n00001:   1.000 Mbit/s    0 ms burst 5120\n  bw " +
			"1Mbit/s burst 5120\n00002: 512.000 Kbit/s    0 ms burst 0\n  bw 512Kbit/s mask " +
			"src-ip 0x000000ff\n", 0},
	{"ipfw pipe 1 delete; ipfw pipe list 2 | wc -l; ipfw pipe flush; ipfw pipe show",
		"2\n", 0},
	{"ipfw nat 7 config if em0 same_ports redirect_port tcp 10.9.0.5:http 80 && " +
		"ipfw add 700 nat 7 ip from any to any via em0 && ipfw nat show config && " +
		"ipfw -q delete 700 && ipfw nat 7 delete && ipfw nat show",
		"00700 nat 7 ip from any to any via em0\nipfw nat 7 config if em0 redirect_port tcp " +
			"10.9.0.5:80 80\n", 0},
	{"ipfw add 710 forward 127.0.0.1:3128 log tcp from any to any in && ipfw list 710 && " +
		"ipfw -q delete 710", "00710 fwd 127.0.0.1,3128 log tcp from any to any in\n00710 fwd " +
		"127.0.0.1,3128 log tcp from any to any in\n", 0},
	{"ipfw disable one_pass 2>&1 | grep -c one_pass; ipfw -q delete 600; ipfw disable one_pass",
		"1\n", 0},
	{"ipfw -q resetlog >/dev/null 2>&1", "", 64},
	{"ipfw flush >/dev/null 2>&1 </dev/null", "", 64},
}

// TestIPFWScript: a shell script that calls ipfw, as FreeBSD's rc.firewall does, sets up a node.
// Others read what it prints.
func TestIPFWScript(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	// The state of a ping stays until it has been listed.
	p.start("--config", p.file("long.toml", "[timeouts]\nshort = 600\n"), "--iface", "eth0")
	bin := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s --root %s --bpffs %s ipfw \"$@\"\n", weir, p.root,
		p.bpffs)
	if err := os.WriteFile(filepath.Join(bin, "ipfw"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	sh := func(script string) (string, int) {
		t.Helper()
		cmd := p.server.Command("sh", "-c", "PATH="+bin+":$PATH\n"+script)
		out, err := cmd.CombinedOutput()
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, c := range ipfwScripts {
		if out, code := sh(c.script); out != c.want || code != c.code {
			t.Errorf("%s: status %d, want %d\n%s\nwant\n%s", c.script, code, c.code, out, c.want)
		}
	}
	if err := ping(p.client, "10.66.0.1"); err != nil {
		t.Error(err)
	}
	if out, _ := sh("ipfw -D show"); !strings.HasPrefix(out, "## Dynamic rules (1 156):\n00400 ") ||
		!strings.Contains(out, "s) STATE icmp 10.66.0.2 ") {
		t.Errorf("states:\n%s", out)
	}

	file := filepath.Join(bin, "ipfw.rules")
	rules := "-f flush\nadd 1 check-state\nadd 10 allow icmp from 10.66.0.2 to me keep-state\n"
	if err := os.WriteFile(file, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := sh("ipfw -n " + file); out != "" || code != 0 {
		t.Errorf("ipfw -n: %d %s", code, out)
	}
	out, code := sh("ipfw -q " + file + "; ipfw list")
	if want := "00001 check-state :default\n00010 allow icmp from 10.66.0.2 to me keep-state " +
		":default\n65535 deny ip from any to any\n"; out != want || code != 0 {
		t.Errorf("after the file: %d\n%s", code, out)
	}
	if out, code := sh("ipfw -f flush"); out != "Flushed all rules.\n" || code != 0 {
		t.Errorf("flush: %d %s", code, out)
	}
}

// TestIPFWByName: a link to the binary that is called ipfw speaks ipfw's command line to the node
// of the host, as that of the package does. It sees the node's directory as /run.
func TestIPFWByName(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	link := filepath.Join(t.TempDir(), "ipfw")
	if err := os.Symlink(weir, link); err != nil {
		t.Fatal(err)
	}
	out, err := p.server.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" /run
ipfw=$2
$ipfw -q add 100 allow icmp from any to any && $ipfw list
$ipfw -x list 2>&1; echo $?`, "sh", filepath.Join(p.root, "run"), link).CombinedOutput()
	want := "00100 allow icmp from any to any\n65535 allow ip from any to any\n" +
		"ipfw: illegal option -- x\n"
	if err != nil || !strings.HasPrefix(string(out), want) ||
		!strings.HasSuffix(string(out), "\n64\n") {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
