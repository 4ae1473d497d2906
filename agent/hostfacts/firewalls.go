package hostfacts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// firewalls names the other firewalls that are active, for people.
func firewalls(root string) (all []string) {
	all = []string{}
	for line := range strings.SplitSeq(tables(), "\n") {
		w := strings.Fields(line) // table inet filter
		if len(w) == 3 && w[0] == "table" {
			all = append(all, "nftables with "+line)
		}
	}
	for _, f := range []string{"ip_tables_names", "ip6_tables_names"} { // those of before nftables
		for t := range strings.FieldsSeq(read(filepath.Join(root, "proc/net", f))) {
			all = append(all, strings.TrimSuffix(f, "_names")+" with table "+t)
		}
	}
	for line := range strings.SplitSeq(read(filepath.Join(root, "etc/ufw/ufw.conf")), "\n") {
		if strings.EqualFold(strings.TrimSpace(line), "ENABLED=yes") {
			all = append(all, "ufw")
		}
	}
	if _, err := os.Stat(filepath.Join(root, "run/firewalld.pid")); err == nil {
		all = append(all, "firewalld")
	}
	return all
}

// tables lists the tables of nftables, "" without nft(8) or the right to use it.
func tables() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if err != nil {
		return ""
	}
	return string(out)
}
