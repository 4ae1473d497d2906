//go:build !linux

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
)

// forbidBroadcast does nothing here.
func forbidBroadcast(uintptr) error { return nil }

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// move moves everything from src to dst.
func (t *tunnel) move(dst, src net.Conn) error { return t.copyLoop(dst, src) }

// watch does nothing here: the proxy notices only after the dial that a client has hung up.
func watch(net.Conn, context.CancelFunc) (stop func()) { return func() {} }
