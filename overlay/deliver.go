package overlay

import "fmt"

// Deliver gives the kernel an IP packet as if a peer had sent it. The Filter does not see it: it is
// for what a Filter sends itself, answers and probes.
func (d *Device) Deliver(packet []byte) error {
	b := make([]byte, vnetSize+len(packet))
	copy(b[vnetSize:], packet)
	if _, err := d.tun.file.Write(b); err != nil {
		return fmt.Errorf("overlay: deliver: %w", err)
	}
	return nil
}
