package nl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watchGroups calls changed once at the beginning, and then after notifications to groups of a
// netlink protocol in the namespace of the calling thread. It does so at most about twenty times a
// second, until ctx ends.
func watchGroups(ctx context.Context, what string, changed func(), protocol int,
	groups ...uint) error {
	s, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	stop := context.AfterFunc(ctx, s.Close) // which ends Receive
	defer func() {
		if stop() {
			s.Close()
		}
	}()
	for {
		changed()
		time.Sleep(routesPause)
		for {
			_, _, err := s.Receive()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil || errors.Is(err, unix.ENOBUFS) { // the kernel lost some
				break
			}
			if !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
}
