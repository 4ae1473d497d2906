package hostfacts

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/weirnet/weir/agent/setup"
)

// put writes a file below root.
func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestListeners reads lines of a real /proc/net.
func TestListeners(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   " +
		"uid" +
		"  timeout inode\n"
	const rest = " 00000000:00000000 00:00000000 00000000     0        0 "
	proc := t.TempDir()
	put(t, proc, "net/tcp", head+"   0: 00000000:0050 00000000:0000 0A"+rest+"11 1\n"+
		"   1: 0100007F:1F90 00000000:0000 0A"+rest+"12 1\n"+
		"   2: 0100420A:0016 0200420A:9C40 01"+rest+"13 1\n")
	put(t, proc, "net/tcp6", head+"   0: 00000000000000000000000000000000:0050 "+
		"00000000000000000000000000000000:0000 0A"+rest+"14 1\n"+
		"   1: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A"+
		rest+"15 1\n"+
		"   2: 000066FD000000000000000001000000:0016 00000000000000000000000000000000:0000 0A"+
		rest+"15 1\n")
	put(t, proc, "net/udp", head+"  5: 00000000:0044 00000000:0000 07"+rest+"16 1\nnot a line\n")
	const any6 = "0000:0000:0000:0000:0000:0000:0000:0000 \n"
	put(t, proc, "net/sctp/eps", " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n"+
		" 1 2 2   10  26   36412     0 17 "+any6+" 1 2 2   10  26   3868     0 18 "+any6+
		" 1 2 0   10  27   3868     0 14 0.0.0.0 \n 1 2 2   7   26   5000     0 19 0.0.0.0 \n")
	put(t, proc, "7/comm", "nginx\n")
	if err := os.MkdirAll(filepath.Join(proc, "7/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for fd, to := range map[string]string{"3": "socket:[11]", "4": "socket:[14]",
		"0": "/dev/null"} {
		if err := os.Symlink(to, filepath.Join(proc, "7/fd", fd)); err != nil {
			t.Fatal(err)
		}
	}
	addr := netip.MustParseAddr
	want := []setup.Listener{
		{Proto: "tcp", Address: addr("0.0.0.0"), Port: 80, Program: "nginx"},
		{Proto: "tcp", Address: addr("127.0.0.1"), Port: 8080},
		{Proto: "tcp", Address: addr("::"), Port: 80, Program: "nginx"},
		{Proto: "tcp", Address: addr("::"), Port: 22, Both: true},
		{Proto: "tcp", Address: addr("fd66::1"), Port: 22},
		{Proto: "udp", Address: addr("0.0.0.0"), Port: 68},
		{Proto: "sctp", Address: addr("0.0.0.0"), Port: 3868, Program: "nginx"},
		{Proto: "sctp", Address: addr("::"), Port: 36412, Both: true},
		{Proto: "sctp", Address: addr("::"), Port: 3868},
	}
	if got := listeners(proc); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestFirewalls: what is configured, without nft.
func TestFirewalls(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	root := t.TempDir()
	for name, text := range map[string]string{"proc/net/ip_tables_names": "nat\nfilter\n",
		"etc/ufw/ufw.conf": "# x\nENABLED=yes\n", "run/firewalld.pid": "1"} {
		put(t, root, name, text)
	}
	want := []string{"ip_tables with table nat", "ip_tables with table filter", "ufw", "firewalld"}
	if got := firewalls(root); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if got := firewalls(t.TempDir()); len(got) != 0 {
		t.Errorf("an empty host has %v", got)
	}
}
