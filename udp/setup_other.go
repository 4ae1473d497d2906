//go:build !linux

package udp

import (
	"fmt"
	"net"
	"syscall"
	"time"
)

// system is the socket of package net.
type system struct{ portable }

func (s *system) close() error                       { return s.pc.Close() }
func (s *system) setReadDeadline(t time.Time) error  { return s.pc.SetReadDeadline(t) }
func (s *system) setWriteDeadline(t time.Time) error { return s.pc.SetWriteDeadline(t) }

func (s *system) rawConn() (syscall.RawConn, error) { return s.pc.SyscallConn() }

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

// Buffers returns the configured sizes: other systems do not report the actual ones.
func (c *Conn) Buffers() (read, write int, err error) {
	return c.config.ReadBuffer, c.config.WriteBuffer, nil
}

// Features returns no features: this system has none.
func (c *Conn) Features() Features { return Features{Segments: 1} }

// ReadErrors returns none: Config.Errors is not supported.
func (c *Conn) ReadErrors([]ICMPError) (int, error) { return 0, nil }
