package overlay

import "fmt"

// Deliver passes an IP packet to the kernel as if a peer had sent it, without calling the Filter.
// It is for packets that a Filter sends itself: answers and probes.
func (d *Device) Deliver(packet []byte) error {
	b := make([]byte, vnetSize+len(packet))
	copy(b[vnetSize:], packet)
	if _, err := d.tun.file.Write(b); err != nil {
		return fmt.Errorf("overlay: deliver: %w", err)
	}
	return nil
}
