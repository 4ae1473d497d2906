//go:build !linux

package udp

import "errors"

// Sibling fails: only Linux can do it.
func (c *Conn) Sibling(Config) (*Conn, error) { return nil, errors.ErrUnsupported }
