package udp

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// OpenSender opens a second socket at the address of c (SO_REUSEPORT), only for sending. It has its
// own buffer. Its WriteBatch does not wait for space there but fails with ErrFull. Datagrams to the
// address still arrive at c, which must not be connected. The options are those of config, with
// ReusePort set.
func (c *Conn) OpenSender(config Config) (*Conn, error) {
	// Only now: with SO_REUSEPORT from the beginning, c could have bound an address that another
	// program already shares.
	if err := c.reuse(); err != nil {
		return nil, err
	}
	config.ReusePort, config.noWait = true, true
	local := c.local
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())
	}
	network := "udp"
	switch c.family {
	case familyV4:
		network = "udp4"
	case familyV6:
		network = "udp6"
	}
	s, err := Listen(network, local, config)
	if err != nil {
		return nil, err
	}
	if err := c.receiveAll(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (c *Conn) reuse() (err error) {
	if e := c.sys.Control(func(fd uintptr) {
		err = setInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT")
	}); e != nil {
		return e
	}
	return err
}

// receiveAll makes c receive the datagrams for all sockets of its address. c is the first one of
// the group, and a BPF program of one instruction selects number 0.
func (c *Conn) receiveAll() (err error) {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	if e := c.sys.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	}); e != nil {
		return e
	}
	if err != nil {
		return fmt.Errorf("setsockopt SO_ATTACH_REUSEPORT_CBPF: %w", err)
	}
	return nil
}
