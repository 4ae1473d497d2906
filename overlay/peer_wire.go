package overlay

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weirnet/weir/overlay/internal/device"
)

var _ wire = (*Device)(nil)

// put implements wire. The peer gets its ranges before it loses others, so that those that it keeps
// are its own at every moment.
func (d *Device) put(p *peer, list []netip.AddrPort) error {
	p.peerEndpoint = d.bind.addPeer(p.Key)
	p.peerEndpoint.setCandidates(list)
	if err := d.wg.IpcSet(p.uapi()); err != nil {
		return err
	}
	d.wg.SetRanges(device.NoisePublicKey(p.Key), p.Pods)
	return nil
}

// drop implements wire.
func (d *Device) drop(key Key) error {
	if err := d.wg.IpcSet("public_key=" + key.hex() + "\nremove=true\n"); err != nil {
		return err
	}
	d.bind.dropPeer(key)
	return nil
}

// setCandidates implements wire.
func (d *Device) setCandidates(p *peer, list []netip.AddrPort) {
	p.peerEndpoint.setCandidates(list)
}

// uapi is the peer in the configuration protocol of WireGuard. It takes no range away from it.
func (p *Peer) uapi() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"public_key=%s\npreshared_key=%s\nendpoint=%s@\npersistent_keepalive_interval=%d\n",
		p.Key.hex(), p.Preshared.hex(), p.Key.hex(), int(p.Keepalive/time.Second))
	for _, r := range p.Pods {
		fmt.Fprintf(&b, "allowed_ip=%s\n", r)
	}
	return b.String()
}
