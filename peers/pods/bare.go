package main

import (
	"encoding/binary"
	"errors"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// bare forwards the packets between a host's only pod and its network card by programs that do
// nothing else: no firewall, no lookup, one neighbour. The difference between them and host to host
// is the least possible cost; the difference between them and Weir is what Weir costs.
func (h *host) bare(neighbour *host, helper asm.BuiltinFunc) error {
	card, err := h.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	other, err := neighbour.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	pod := h.pods.List()[0]
	return h.Do(func() error {
		return errors.Join(
			h.redirect(int(pod.Index), card.Index, other.HardwareAddr, card.HardwareAddr,
				asm.FnRedirect),
			h.redirect(card.Index, int(pod.Index), net.HardwareAddr(pod.MAC), pod.HostMAC, helper),
		)
	})
}

// redirect forwards all IPv4 that comes in at one interface to another.
func (h *host) redirect(from, to int, dst, src net.HardwareAddr, helper asm.BuiltinFunc) error {
	spec := &ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: forwarder(to, dst, src, helper)}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: from, Program: prog,
		Attach: ebpf.AttachTCXIngress})
	if err == nil {
		h.b.undo = append(h.b.undo, l.Close)
	}
	return err
}

// forwarder writes the addresses, decrements the time to live, which needs no check here, and
// redirects.
func forwarder(to int, dst, src net.HardwareAddr, helper asm.BuiltinFunc) asm.Instructions {
	const (
		skbProtocol, skbData, skbDataEnd = 16, 76, 80
		ttl, checksum                    = 22, 24
		space                            = 34
	)
	macs := append(append([]byte(nil), dst...), src...)
	ip := int32(binary.NativeEndian.Uint16([]byte{8, 0}))
	// the time to live is the upper half of its word
	oneLess := int32(binary.NativeEndian.Uint16([]byte{1, 0}))
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, skbProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, ip, "pass"),
		asm.LoadMem(asm.R2, asm.R1, skbData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, skbDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, space),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.StoreImm(asm.R2, 0, int64(int32(binary.NativeEndian.Uint32(macs[0:]))), asm.Word),
		asm.StoreImm(asm.R2, 4, int64(int32(binary.NativeEndian.Uint32(macs[4:]))), asm.Word),
		asm.StoreImm(asm.R2, 8, int64(int32(binary.NativeEndian.Uint32(macs[8:]))), asm.Word),
		asm.LoadMem(asm.R3, asm.R2, ttl, asm.Byte),
		asm.Sub.Imm(asm.R3, 1),
		asm.StoreMem(asm.R2, ttl, asm.R3, asm.Byte),
		asm.LoadMem(asm.R3, asm.R2, checksum, asm.Half),
		asm.Add.Imm(asm.R3, oneLess),
		asm.Mov.Reg(asm.R4, asm.R3), // RFC 1141: add the carry
		asm.RSh.Imm(asm.R4, 16),
		asm.Add.Reg(asm.R3, asm.R4),
		asm.StoreMem(asm.R2, checksum, asm.R3, asm.Half),
		asm.Mov.Imm(asm.R1, int32(to)),
		asm.Mov.Imm(asm.R2, 0),
		helper.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), // TCX_NEXT
		asm.Return(),
	}
}
