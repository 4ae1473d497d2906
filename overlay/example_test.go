package overlay_test

import (
	"log"
	"net/netip"

	"github.com/weirnet/weir/overlay"
)

// A node with one peer. It needs root, hence it is compiled and not run.
func Example() {
	key, err := overlay.LoadKey("/var/lib/weir/key") // made at the first time
	if err != nil {
		log.Fatal(err)
	}
	dev, err := overlay.New(overlay.Config{Name: "weir0", Key: key, Port: 51820, UAPI: overlay.DefaultUAPI})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	peerKey, err := overlay.ParseKey("8f/Z99jET5hkpOJTKYDqzSnx8nC/6m/0jxU9qF0+9Rc=")
	if err != nil {
		log.Fatal(err)
	}
	if err := dev.SetPeer(overlay.Peer{Name: "b", Key: peerKey, Endpoints: []string{"b.example:51820"},
		Pods: []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}}); err != nil {
		log.Fatal(err)
	}
	<-dev.Done()
}
