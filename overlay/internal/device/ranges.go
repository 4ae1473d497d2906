package device

import "net/netip"

// SetRanges gives a peer these allowed IPs and no others, if there is such a peer. Who looks an
// address up finds the allowed IPs before or those after, never a part of them: the configuration
// protocol (replace_allowed_ips) takes all away first. This file is not a copy.
func (device *Device) SetRanges(key NoisePublicKey, ranges []netip.Prefix) {
	device.peers.RLock() // a peer that is removed has none
	defer device.peers.RUnlock()
	if peer := device.peers.keyMap[key]; peer != nil {
		device.allowedips.setPeerPrefixes(peer, ranges)
	}
}
