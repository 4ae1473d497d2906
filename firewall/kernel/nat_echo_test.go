package kernel

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/packet/build"
)

// TestEchoIDsOfTheHost: the host and a pod ask one address with the same id, in either order. Each
// gets its answers: the pod's query leaves with another id. Otherwise a pod could take the answers
// to all queries of the host.
func TestEchoIDsOfTheHost(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 2999)
	link := f.podLinks[podA]
	echo := func(at crossing, out bool, from, to netip.Addr, typ uint8, id uint16) (code int32,
		dst netip.Addr, left uint16) {
		t.Helper()
		code, frame := f.hop(&hop{index: at.index, out: out, frame: f.hopFrame(end(from, 0),
			end(to, 0), build.ICMP{Type: typ, Rest: uint32(id)<<16 | 1})})
		return code, netip.AddrFrom4([4]byte(frame[30:34])), binary.BigEndian.Uint16(frame[38:])
	}
	host := func(id uint16) {
		t.Helper()
		if code, _, left := echo(f.nic, true, hostAddr, outsideAddr, 8, id); code != wentUp ||
			left != id {
			t.Errorf("the host asks with the id %d: %d, %d", id, code, left)
		}
	}
	pod := func(id uint16) (left uint16) {
		t.Helper()
		code, _, left := echo(link, false, podA, outsideAddr, 8, id)
		if code != redirected {
			t.Errorf("the pod asks with the id %d: %d", id, code)
		}
		return left
	}
	answer := func(to string, id uint16, wantCode int32, wantTo netip.Addr, wantID uint16) {
		t.Helper()
		code, dst, left := echo(f.nic, false, outsideAddr, hostAddr, 0, id)
		if code != wantCode || dst != wantTo || left != wantID {
			t.Errorf("the answer to %s: %d, to %s with the id %d", to, code, dst, left)
		}
	}
	host(77)
	moved := pod(77)
	if moved == 77 {
		t.Error("the pod asks with the id of the host")
	}
	answer("the host", 77, wentUp, hostAddr, 77)
	answer("the pod", moved, redirected, podA, 77)
	if id := pod(88); id != 88 {
		t.Errorf("the pod asks with the id %d, 88 was free", id)
	}
	host(88)
	answer("the host, which asked later", 88, wentUp, hostAddr, 88)
	answer("the pod", pod(88), redirected, podA, 88)
	answer("the host again", 88, wentUp, hostAddr, 88)
}
