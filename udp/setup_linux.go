package udp

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// system is the Linux part of a Conn.
type system struct {
	*socket
	gso, gro bool
	segments int    // the most datagrams in a GSO packet
	control  bool   // whether datagrams come with control data other than GRO's
	why      string // why the kernel's GSO is not used
	readers  pool   // rings
	writers  pool
	routes   routes
	zones    zones
	errors   errorList
}

// beforeBind sets what must be set before the socket has an address.
func beforeBind(raw syscall.RawConn, config *Config) error {
	var err error
	e := raw.Control(func(fd uintptr) {
		if config.ReusePort {
			err = setInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT")
		}
		if config.Mark != 0 && err == nil {
			err = setInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(config.Mark), "SO_MARK")
		}
	})
	if e != nil {
		return e
	}
	return err
}

// setup takes over the socket that package net has created and bound.
func (c *Conn) setup(pc *net.UDPConn) error {
	defer pc.Close()
	s, err := newSocket(pc)
	if err != nil {
		return err
	}
	c.sys.socket = s
	if err := c.setOptions(s.fd); err != nil {
		s.close()
		return err
	}
	return nil
}

// option is a socket option of one IP version.
type option struct {
	level, name int
	text        string
}

func (c *Conn) setOptions(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_DOMAIN", err)
	}
	c.family = familyV4
	if domain == unix.AF_INET6 {
		c.family = familyDual
		only, err := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		if err != nil {
			return os.NewSyscallError("getsockopt IPV6_V6ONLY", err)
		}
		if only != 0 {
			c.family = familyV6
		}
	}
	cfg := &c.config
	setBuffer(fd, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, cfg.ReadBuffer)
	setBuffer(fd, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, cfg.WriteBuffer)
	if cfg.PacketInfo {
		// A dual-stack socket reports the address of IPv4 datagrams in the IPv6 option, mapped.
		o4 := option{unix.IPPROTO_IP, unix.IP_PKTINFO, "IP_PKTINFO"}
		if c.family != familyV4 {
			o4 = option{}
		}
		if err := c.set(fd, o4, option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO,
			"IPV6_RECVPKTINFO"}, 1); err != nil {
			return err
		}
	}
	if cfg.ECN {
		if err := c.set(fd, option{unix.IPPROTO_IP, unix.IP_RECVTOS, "IP_RECVTOS"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, "IPV6_RECVTCLASS"}, 1); err != nil {
			return err
		}
	}
	if cfg.DontFragment {
		if err := c.set(fd, option{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, "IP_MTU_DISCOVER"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER,
				"IPV6_MTU_DISCOVER"}, unix.IP_PMTUDISC_DO); err != nil {
			return err
		}
	}
	if cfg.Errors {
		if err := c.set(fd, option{unix.IPPROTO_IP, unix.IP_RECVERR, "IP_RECVERR"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, "IPV6_RECVERR"}, 1); err != nil {
			return err
		}
	}
	if cfg.Timestamps {
		if err := setInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1,
			"SO_TIMESTAMPNS"); err != nil {
			return err
		}
	}
	c.sys.control = cfg.PacketInfo || cfg.ECN || cfg.Timestamps
	if c.sys.control || cfg.GRO {
		// Costs nothing until the first drop: the kernel adds the counter only when it is not zero.
		if err := setInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, "SO_RXQ_OVFL"); err != nil {
			return err
		}
	}
	c.probe(fd)
	return nil
}

// probe finds which offloads the kernel has.
func (c *Conn) probe(fd int) {
	c.sys.segments = maxSegments(kernel())
	if _, err := unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT); err == nil {
		c.sys.why = gsoBug(kernel())
		c.sys.gso = c.sys.why == "" && !c.config.NoGSO
	}
	if c.config.GRO {
		c.sys.gro = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	}
}

// set sets an option for every IP version of the socket.
func (c *Conn) set(fd int, o4, o6 option, value int) error {
	if c.family != familyV6 && o4.text != "" {
		if err := setInt(fd, o4.level, o4.name, value, o4.text); err != nil {
			return err
		}
	}
	if c.family != familyV4 {
		return setInt(fd, o6.level, o6.name, value, o6.text)
	}
	return nil
}

func setInt(fd, level, name, value int, text string) error {
	if err := unix.SetsockoptInt(fd, level, name, value); err != nil {
		return fmt.Errorf("setsockopt %s: %w", text, err)
	}
	return nil
}

// setBuffer sets a buffer size, up to the system's limit, or beyond it with CAP_NET_ADMIN.
func setBuffer(fd, name, force, size int) {
	if size <= 0 {
		return
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, name, size)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size)
}

// Buffers returns the sizes of the kernel's socket buffers in bytes. The kernel counts its own
// overhead against twice these sizes.
func (c *Conn) Buffers() (read, write int, err error) {
	e := c.sys.Control(func(fd uintptr) {
		if read, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			write, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		}
	})
	if e != nil {
		return 0, 0, e
	}
	return read / 2, write / 2, err
}

// Features returns the kernel's mechanisms that the Conn uses.
func (c *Conn) Features() Features {
	return Features{Batch: true, GSO: c.sys.gso, GRO: c.sys.gro,
		Segments: c.sys.segments, Why: c.sys.why}
}
