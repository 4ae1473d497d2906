//go:build !linux

package udp

import "errors"

// OpenSender returns errors.ErrUnsupported: it needs Linux.
func (c *Conn) OpenSender(Config) (*Conn, error) { return nil, errors.ErrUnsupported }
