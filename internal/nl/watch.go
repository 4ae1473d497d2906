package nl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// watchBuffer is the kernel's buffer for notifications that were not read yet, in bytes. The
	// kernel doubles it and caps it at net.core.rmem_max. It holds a few hundred.
	watchBuffer = 1 << 20
	// resyncPause keeps a listener that is always too slow from listing without end.
	resyncPause = 20 * time.Millisecond
	// maxGone bounds how many links that went are remembered. Few indexes are ever used again.
	maxGone = 4096
)

// Watch calls report for every link and address of ns (the namespace of the calling thread when ns
// is nil), and then with Synced. After that it calls report for every change, until ctx ends. All
// calls come from the goroutine that called Watch. When notifications were lost, everything is
// listed again, the differences are reported as ordinary events, and Synced follows.
//
// Links and addresses are notified through different sockets, so that their order among each other
// is not kept.
func Watch(ctx context.Context, ns *NS, report func(Event)) error {
	return watch(ctx, ns, watchBuffer, report)
}

func watch(ctx context.Context, ns *NS, buffer int, report func(Event)) error {
	conn, err := Open(ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	t := newTable(report)
	return follow(ctx, ns, func(ns *NS) error { return watchOnce(ctx, ns, buffer, conn, t) })
}

// follow calls a function with ns, or the namespace of the calling thread when ns is nil, until it
// fails or ctx ends. When it returns nil, notifications were lost, and it is called again.
func follow(ctx context.Context, ns *NS, once func(*NS) error) error {
	if ns == nil {
		here, err := CurrentNS()
		if err != nil {
			return err
		}
		defer here.Close()
		ns = here
	}
	for {
		if err := once(ns); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resyncPause):
		}
	}
}

// watchOnce subscribes, lists, and follows until notifications were lost (nil) or something failed.
func watchOnce(ctx context.Context, ns *NS, buffer int, conn *Conn, t *table) error {
	links := make(chan netlink.LinkUpdate, 64)
	addrs := make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	at := netns.NsHandle(ns.Fd())
	err := netlink.LinkSubscribeWithOptions(links, done,
		netlink.LinkSubscribeOptions{Namespace: &at, ReceiveBufferSize: buffer})
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	defer drain(links)
	err = netlink.AddrSubscribeWithOptions(addrs, done,
		netlink.AddrSubscribeOptions{Namespace: &at, ReceiveBufferSize: buffer})
	if err != nil {
		close(done)
		return fmt.Errorf("watch addresses: %w", err)
	}
	defer drain(addrs)
	defer close(done)

	linkList, err := conn.Links()
	if err != nil {
		return err
	}
	addrList, err := conn.Addrs(0)
	if err != nil {
		return err
	}
	t.sync(linkList, addrList)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u, ok := <-links:
			if !ok { // the kernel lost some: ENOBUFS
				return nil
			}
			if again := t.applyLink(u); again != 0 {
				if err := t.listAddrs(conn, again); err != nil {
					return err
				}
			}
		case u, ok := <-addrs:
			if !ok {
				return nil
			}
			t.applyAddr(u)
		}
	}
}

// drain lets the library's reader end: it may be waiting to hand over one more notification.
func drain[T any](ch <-chan T) {
	for range ch {
	}
}

// applyLink takes a notification. It returns the index of a link that was made with the index of
// another that went. Some of its addresses may have been reported before the other's end, which
// ended them, too.
func (t *table) applyLink(u netlink.LinkUpdate) (again int) {
	index := int(u.IfInfomsg.Index)
	switch {
	case u.IfInfomsg.Family == unix.AF_BRIDGE:
		// This is about a bridge's port, not a link: a DELLINK means that the link left the bridge.
	case u.Header.Type == unix.RTM_DELLINK:
		t.dropLink(index)
		if len(t.gone) == maxGone { // which only costs what they are for
			clear(t.gone)
		}
		t.gone[index] = true
	default:
		t.setLink(linkOf(u.Link))
		if t.gone[index] {
			delete(t.gone, index)
			return index
		}
	}
	return 0
}

// listAddrs reports the addresses of one link that were not reported yet.
func (t *table) listAddrs(conn *Conn, index int) error {
	all, err := conn.Addrs(index)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	for _, a := range all {
		t.setAddr(a)
	}
	return err
}

func (t *table) applyAddr(u netlink.AddrUpdate) {
	a := addrFrom(netlink.Addr{IPNet: &u.LinkAddress, LinkIndex: u.LinkIndex, Flags: u.Flags,
		Scope: u.Scope})
	if u.NewAddr {
		t.setAddr(a)
		return
	}
	t.dropAddr(addrKey{a.Link, a.Prefix})
}
