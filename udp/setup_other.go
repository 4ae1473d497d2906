//go:build !linux

package udp

import (
	"fmt"
	"net"
	"syscall"
	"time"
)

// system is the socket as package net has it.
type system struct{ portable }

func (s *system) close() error                       { return s.pc.Close() }
func (s *system) setReadDeadline(t time.Time) error  { return s.pc.SetReadDeadline(t) }
func (s *system) setWriteDeadline(t time.Time) error { return s.pc.SetWriteDeadline(t) }

// rawConn never fails: it does so only for a nil connection.
func (s *system) rawConn() syscall.RawConn {
	raw, _ := s.pc.SyscallConn()
	return raw
}

func beforeBind(_ syscall.RawConn, config *Config) error {
	if config.ReusePort || config.Mark != 0 {
		return fmt.Errorf("ReusePort and Mark: %w", unsupported("only Linux"))
	}
	return nil
}

func (c *Conn) setup(pc *net.UDPConn) error {
	c.sys.portable = portable{pc, c.connected, &c.stats}
	cfg := &c.config
	if cfg.PacketInfo || cfg.ECN || cfg.Timestamps || cfg.DontFragment || cfg.Errors {
		return fmt.Errorf("PacketInfo, ECN, Timestamps, DontFragment and Errors: %w",
			unsupported("only Linux"))
	}
	c.family = familyDual
	if a := c.LocalAddrPort().Addr(); a.Is4() {
		c.family = familyV4
	}
	if cfg.ReadBuffer > 0 {
		if err := pc.SetReadBuffer(cfg.ReadBuffer); err != nil {
			return err
		}
	}
	if cfg.WriteBuffer > 0 {
		return pc.SetWriteBuffer(cfg.WriteBuffer)
	}
	return nil
}

func (c *Conn) readBatch(msgs []Message) (int, error)  { return c.sys.read(msgs) }
func (c *Conn) writeBatch(msgs []Message) (int, error) { return c.sys.write(msgs) }

// Buffers returns what was asked for: other systems do not tell.
func (c *Conn) Buffers() (read, write int, err error) {
	return c.config.ReadBuffer, c.config.WriteBuffer, nil
}

// Features tells which ways of the kernel are in use: none.
func (c *Conn) Features() Features { return Features{Segments: 1} }

// SetGSO fails with errors.ErrUnsupported when on is set.
func (c *Conn) SetGSO(on bool) error {
	if on {
		return fmt.Errorf("udp: sending super packets: %w", unsupported("only Linux"))
	}
	return nil
}

// ReadErrors returns none: Config.Errors is not served.
func (c *Conn) ReadErrors([]ICMPError) (int, error) { return 0, nil }
