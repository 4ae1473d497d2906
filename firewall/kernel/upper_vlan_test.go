//go:build vlan

package kernel

import "testing"

// What needs VLANs and bonds, which not every kernel has.

// evaluatedTwice wants what a pod sends to be refused if the lower device evaluates it, too: there
// it has the address of the host.
func (u *onUpper) evaluatedTwice() {
	u.t.Helper()
	u.must(u.engine.SetUppers(nil))
	if tryExchange(u.a.Node, "192.0.2.2:80") == nil {
		u.t.Error("a packet that is translated already passes a rule about what it was")
	}
}

func TestUpperVLAN(t *testing.T) {
	u := newOnUpper(t, "link add link eth0 name up0 type vlan id 10")
	u.run(u.outside, "addr flush dev eth0", "link add link eth0 name eth0.10 type vlan id 10",
		"link set eth0.10 up", "addr add 192.0.2.2/24 dev eth0.10",
		"addr add 2001:db8::2/64 dev eth0.10 nodad", "route add 10.88.0.0/24 via 192.0.2.1",
		"-6 route replace fd00:88::/64 via 2001:db8::1")
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic}}))
	u.check()
	u.evaluatedTwice()
}

func TestUpperBond(t *testing.T) {
	u := newOnUpper(t, "link add up0 type bond mode active-backup", "link set eth0 down",
		"link set eth0 master up0")
	u.must(u.engine.SetUppers([]Upper{{Index: u.upper, Lower: u.nic}}))
	u.check()
	u.evaluatedTwice()
}
