package doctor

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// nlmsg prefixes a body with a netlink header (netlink(7)) that asks for an answer.
func nlmsg(kind, flags uint16, body []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, 1, 0, 0, 0, 0, 0, 0, 0) // sequence, port
	return append(m, body...)
}

// newQdisc asks for a clsact qdisc on the loopback: struct tcmsg and TCA_KIND.
func newQdisc() []byte {
	// TC_H_MAKE(TC_H_CLSACT, 0), TC_H_CLSACT
	const clsactHandle, clsactParent = 0xffff0000, 0xfffffff1
	b := make([]byte, 4) // family, padding
	b = binary.NativeEndian.AppendUint32(b, loopback)
	b = binary.NativeEndian.AppendUint32(b, clsactHandle)
	b = binary.NativeEndian.AppendUint32(b, clsactParent)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, 4+7)
	b = binary.NativeEndian.AppendUint16(b, unix.TCA_KIND)
	b = append(b, "clsact\x00\x00"...)
	return nlmsg(unix.RTM_NEWQDISC, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
}

// tcpSockets asks for all TCP sockets of IPv4: struct inet_diag_req_v2 (sock_diag(7)).
func tcpSockets() []byte {
	const sockDiagByFamily, allStates = 20, 0xfff
	b := []byte{unix.AF_INET, unix.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, allStates)
	b = append(b, make([]byte, 48)...) // struct inet_diag_sockid: any
	return nlmsg(sockDiagByFamily, unix.NLM_F_DUMP, b)
}

// netlinkError returns the error that an answer carries.
func netlinkError(answer []byte) error {
	if len(answer) < 20 {
		return fmt.Errorf("netlink: short answer of %d bytes", len(answer))
	}
	if binary.NativeEndian.Uint16(answer[4:]) == unix.NLMSG_ERROR {
		if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
			return syscall.Errno(-code)
		}
	}
	return nil
}
