package overlay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/race"
)

// lookupTime bounds how long names may take.
const lookupTime = 3 * time.Second

// resolve turns endpoints into addresses, in order. err tells of the names that were not found.
func resolve(endpoints []string) (list []netip.AddrPort, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	add := func(a netip.AddrPort) {
		if a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, e := range endpoints {
		if a, bad := netip.ParseAddrPort(e); bad == nil {
			add(a)
			continue
		}
		host, port, _ := net.SplitHostPort(e)
		n, _ := strconv.ParseUint(port, 10, 16)
		addrs, bad := lookup(ctx, host)
		err = errors.Join(err, bad)
		for _, a := range addrs {
			add(netip.AddrPortFrom(a, uint16(n)))
		}
	}
	return list, err
}

// lookup returns the addresses of a name, the families taking turns as in RFC 8305 section 4: handshakes go to one after the other. A
// family whose server does not answer in time is left out.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	var six, four []netip.Addr
	var errs []error
	eyeballs.DefaultResolver.Ask(ctx, host, race.A|race.AAAA, func(a dns.Answer) {
		for _, addr := range a.Addrs {
			if addr.Unmap().Is4() {
				four = append(four, addr)
			} else {
				six = append(six, addr)
			}
		}
		errs = append(errs, a.Err)
	})
	var list []netip.Addr
	for i := range max(len(six), len(four)) {
		if i < len(six) {
			list = append(list, six[i])
		}
		if i < len(four) {
			list = append(list, four[i])
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	return nil, &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
}
