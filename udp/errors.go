package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
)

// ICMPError is an ICMP message, or an error of this host, about a datagram that a Conn sent.
type ICMPError struct {
	Addr netip.AddrPort // destination of the datagram
	// sender of the ICMP message; not valid when this host itself found the error
	From  netip.Addr
	Type  uint8 // of the ICMP or ICMPv6 message
	Code  uint8
	MTU   int   // of the path in bytes, when the datagram was larger; else 0
	Errno error // the system's error, such as syscall.EHOSTUNREACH
}

func (e *ICMPError) Error() string {
	by := "this host"
	if e.From.IsValid() {
		by = e.From.String()
	}
	return fmt.Sprintf("udp: datagram to %s: %v (reported by %s, ICMP type %d code %d)", e.Addr,
		e.Errno, by, e.Type, e.Code)
}

func (e *ICMPError) Unwrap() error { return e.Errno }

// errorLimit is how many errors may wait for ReadErrors; further ones are dropped.
const errorLimit = 64

// errorList is a bounded queue of errors.
type errorList struct {
	mu   sync.Mutex
	list []ICMPError
}

// add queues e; false means that the queue is full.
func (l *errorList) add(e ICMPError) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= errorLimit {
		return false
	}
	l.list = append(l.list, e)
	return true
}

// take moves errors to dst and returns how many.
func (l *errorList) take(dst []ICMPError) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := copy(dst, l.list)
	l.list = l.list[:copy(l.list, l.list[n:])]
	return n
}

// unsupported is errors.ErrUnsupported with a reason.
func unsupported(why string) error {
	if why == "" {
		return errors.ErrUnsupported
	}
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, why)
}
