package overlay_test

import (
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/overlay"
)

// A node with one peer. It needs root.
func Example() {
	key, err := overlay.LoadKey(filepath.Join(stateDir, "key")) // made at the first time
	if err != nil {
		log.Fatal(err)
	}
	dev, err := overlay.New(overlay.Config{Name: "weir0", Key: key, Port: 51820, UAPI: stateDir})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	peerKey, err := overlay.ParseKey("8f/Z99jET5hkpOJTKYDqzSnx8nC/6m/0jxU9qF0+9Rc=")
	if err != nil {
		log.Fatal(err)
	}
	if err := dev.SetPeer(overlay.Peer{Name: "b", Key: peerKey,
		Endpoints: []string{"192.0.2.7:51820"},
		Pods:      []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}}); err != nil {
		log.Fatal(err)
	}
	peers, err := dev.Peers()
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range peers {
		fmt.Println(dev.Name(), "carries", p.Pods, "to", p.Name, "at", p.Path)
	}
}

// stateDir is where the example keeps its things, such as /var/lib/weir.
var stateDir string

// TestExample runs the example in a namespace of its own, where it disturbs no other program.
func TestExample(t *testing.T) {
	node := nstest.New(t).Node("a")
	stateDir = t.TempDir()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stdout := os.Stdout
	os.Stdout = write
	err = node.Do(func() error {
		Example()
		return nil
	})
	os.Stdout = stdout
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	const want = "weir0 carries [10.88.2.0/24] to b at 192.0.2.7:51820\n"
	if got, err := io.ReadAll(read); string(got) != want || err != nil {
		t.Errorf("the example printed %q, want %q; %v", got, want, err)
	}
}
