package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/overlay"
)

// TestPeersRecord: what is written is read again, by its owner alone; without a record there are no peers, and a broken one is told of.
func TestPeersRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "peers.json")
	if r, err := readPeers(file); err != nil || len(r.Peers) != 0 {
		t.Errorf("without a record: %+v, %v", r, err)
	}
	want := []overlay.Peer{
		{Name: "a", Key: overlay.Key{1}, Preshared: overlay.Key{2}, Endpoints: []string{"a.example:51820", "192.0.2.1:1"},
			Pods: []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}, Keepalive: 25 * time.Second},
		{Name: "b", Key: overlay.Key{3}, Pods: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}, Plain: true},
	}
	r := peersRecord{Interface: "weir0"}
	for _, p := range want {
		r.Peers = append(r.Peers, recordOf(p))
	}
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record has pre-shared keys; %v, %v", info.Mode(), err)
	}
	back, err := readPeers(file)
	if err != nil || back.Interface != "weir0" || len(back.Peers) != len(want) {
		t.Fatalf("%+v, %v", back, err)
	}
	for i, one := range back.Peers {
		if got := one.peer(); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("got  %+v\nwant %+v", got, want[i])
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readPeers(file); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a broken record: %v", err)
	}
}
