//go:build !linux

package udp

import "errors"

// Sibling returns errors.ErrUnsupported: it needs Linux.
func (c *Conn) Sibling(Config) (*Conn, error) { return nil, errors.ErrUnsupported }
