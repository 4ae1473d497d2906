package kernel

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// The last resort, for a host whose agent cannot start, is a program of its own, small enough to be
// read at one go and without maps. It is in a tc filter, which needs no pin. What comes in passes
// if it may answer something. That is TCP but SYNs, UDP from a well-known port to one that the host
// chooses itself, answers and errors of ICMP, DHCP, and neighbour discovery. If wanted, SYNs to
// port 22 pass, too.

// lastName marks the filter.
const lastName = "weir_last"

// Guards reports whether programs that an engine has pinned below dir are attached to an interface.
func Guards(dir string) bool {
	pins, err := filepath.Glob(filepath.Join(dir, "layout-*", hookPins))
	return err == nil && len(pins) > 0
}

// BlockAll blocks the interfaces that match but the loopback, and returns their names.
func BlockAll(matches func(name string) bool, ssh bool) (closed []string, err error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: lastName, Type: ebpf.SchedCLS,
		Instructions: lastResort(ssh), License: "GPL"})
	if err != nil {
		return nil, fmt.Errorf("load the program of the last resort: %w", err)
	}
	defer program.Close()
	c, err := nl.Open(nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, l := range links {
		if l.Loopback || !matches(l.Name) {
			continue
		}
		if err := c.SetFilter(l.Index, nl.Ingress, program.FD(), lastName); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", l.Name, err))
			continue
		}
		closed = append(closed, l.Name)
	}
	return closed, errors.Join(errs...)
}

// UnblockAll removes the program that BlockAll has attached.
func UnblockAll() error {
	c, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		f, err := c.FilterAt(l.Index, nl.Ingress)
		if err == nil && f.Name == lastName {
			err = c.DeleteFilter(l.Index, nl.Ingress)
		}
		if err != nil && !errors.Is(err, nl.ErrNoLink) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Where things lie: in struct __sk_buff, and in headers that are read to the stack.
const (
	skbProtocol = 16
	fromNetwork = 1 // BPF_HDR_START_NET
	passOn      = -1
	dropIt      = 2
)

// order is a 16-bit number as it is read from the network on a little-endian machine.
func order(n uint16) int32 { return int32(n>>8 | n<<8) }

// read copies bytes from the network header on to the stack; what is not there drops the packet.
func read(at, to, size int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, at), asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, to),
		asm.Mov.Imm(asm.R4, size), asm.Mov.Imm(asm.R5, fromNetwork),
		asm.FnSkbLoadBytesRelative.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
	}
}

// lastResort is the program. Its stack holds the IP header from -64 on, and the first 16 bytes of
// the next from -16 on; R7 is where that begins, R8 what it is.
func lastResort(ssh bool) (p asm.Instructions) {
	add := func(more ...asm.Instruction) { p = append(p, more...) }
	next := func() { // reads the header at R7
		add(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.R7), asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, -16))
	}
	add(asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R2, asm.R6, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R2, order(0x0806), "pass"), // ARP
		asm.JEq.Imm(asm.R2, order(0x888e), "pass"), // the port's own authentication
		asm.JEq.Imm(asm.R2, order(0x86dd), "six"), asm.JNE.Imm(asm.R2, order(0x0800), "drop"))
	p = append(p, read(0, -64, 20)...)
	add(asm.LoadMem(asm.R2, asm.RFP, -64+6, asm.Half), asm.And.Imm(asm.R2, order(0x1fff)),
		asm.JNE.Imm(asm.R2, 0, "pass"), // a later fragment: nothing without its first
		asm.LoadMem(asm.R7, asm.RFP, -64, asm.Byte), asm.And.Imm(asm.R7, 15),
		asm.LSh.Imm(asm.R7, 2),
		asm.LoadMem(asm.R8, asm.RFP, -64+9, asm.Byte),
		asm.JEq.Imm(asm.R8, unix.IPPROTO_ICMP, "icmp"), asm.Ja.Label("ports"))

	six := read(0, -64, 40)
	six[0] = six[0].WithSymbol("six")
	p = append(p, six...)
	add(asm.Mov.Imm(asm.R7, 40), asm.LoadMem(asm.R8, asm.RFP, -64+6, asm.Byte),
		asm.JEq.Imm(asm.R8, unix.IPPROTO_ICMPV6, "icmp6"))

	add(asm.JEq.Imm(asm.R8, unix.IPPROTO_TCP, "tcp").WithSymbol("ports"),
		asm.JNE.Imm(asm.R8, unix.IPPROTO_UDP, "drop"))
	next()
	add(asm.Mov.Imm(asm.R4, 8), asm.Mov.Imm(asm.R5, fromNetwork), asm.FnSkbLoadBytesRelative.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R2, asm.RFP, -16, asm.Half), asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.LoadMem(asm.R3, asm.RFP, -14, asm.Half), asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.JEq.Imm(asm.R3, 68, "pass"), asm.JEq.Imm(asm.R3, 546, "pass"), // DHCP
		asm.JGE.Imm(asm.R2, 1024, "drop"), asm.JGE.Imm(asm.R3, 32768, "pass"), asm.Ja.Label("drop"))

	add(asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("tcp"), asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -16),
		asm.Mov.Imm(asm.R4, 14), asm.Mov.Imm(asm.R5, fromNetwork),
		asm.FnSkbLoadBytesRelative.Call(), asm.JNE.Imm(asm.R0, 0, "drop"),
		// all but SYN without ACK
		asm.LoadMem(asm.R2, asm.RFP, -16+13, asm.Byte), asm.And.Imm(asm.R2,
			0x12), asm.JNE.Imm(asm.R2, 0x02, "pass"))
	if ssh {
		add(asm.LoadMem(asm.R3, asm.RFP, -14, asm.Half), asm.JEq.Imm(asm.R3, order(22), "pass"))
	}
	add(asm.Ja.Label("drop"))

	kinds := func(symbol string, types ...int32) {
		add(asm.Mov.Reg(asm.R1, asm.R6).WithSymbol(symbol), asm.Mov.Reg(asm.R2, asm.R7),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -16),
			asm.Mov.Imm(asm.R4, 1), asm.Mov.Imm(asm.R5, fromNetwork),
			asm.FnSkbLoadBytesRelative.Call(), asm.JNE.Imm(asm.R0, 0, "drop"),
			asm.LoadMem(asm.R2, asm.RFP, -16, asm.Byte))
		for _, t := range types {
			add(asm.JEq.Imm(asm.R2, t, "pass"))
		}
		add(asm.Ja.Label("drop"))
	}
	kinds("icmp", 0, 3, 11, 12)
	kinds("icmp6", 1, 2, 3, 4, 129, 130, 131, 132, 134, 135, 136, 143)
	add(asm.Mov.Imm(asm.R0, passOn).WithSymbol("pass"), asm.Return(),
		asm.Mov.Imm(asm.R0, dropIt).WithSymbol("drop"), asm.Return())
	return p
}
