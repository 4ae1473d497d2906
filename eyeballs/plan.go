package eyeballs

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/weirnet/weir/eyeballs/race"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// newRun prepares a dial of a name.
func newRun(d *Dialer, ctx context.Context, network, address, host string, port uint16) *run {
	r := &run{d: d, network: network, address: address, host: host, begin: time.Now(),
		net: current(), resolver: d.resolver(), winner: -1}
	// A report never blocks for long: the dial takes them in until all have ended.
	r.reports = make(chan report, 4)
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.plain = d.plain()
	r.place, r.known = d.history().recall(r.net.id, address)
	cfg := race.Config{Name: host, Port: port, Sort: r.sort, Shuffle: shuffle}
	r.chooseTypes(&cfg)
	if r.known {
		cfg.Delay = r.place.attemptDelay
		// Do not wait for a family that did not answer the last time.
		if now := r.begin; !r.place.await(false, now) && r.place.await(true, now) &&
			cfg.Types&race.A != 0 {
			cfg.PreferV4 = true
		}
	}
	if d.HTTPS {
		cfg.Types |= race.HTTPS
		r.useful |= race.HTTPS
		cfg.Protocols = []string{"h2", svcb.DefaultProtocol}
		if d.TLS != nil && len(d.TLS.NextProtos) > 0 {
			cfg.Protocols = d.TLS.NextProtos
		}
		if port != 443 {
			cfg.ServiceName = "_" + strconv.Itoa(int(port)) + "._https." + host
		}
	}
	if d.TLS != nil {
		r.tls = d.tlsFor(host)
	}
	if end, ok := ctx.Deadline(); ok {
		cfg.Limit = max(end.Sub(r.begin), 1)
	}
	r.machine = race.New(cfg)
	return r
}

// chooseTypes decides which questions make sense on this host (HEv3 section 4.1).
// The hosts file is always heard about both families: it knows loopback names.
func (r *run) chooseTypes(cfg *race.Config) {
	wanted := race.A | race.AAAA
	local, bound := localAddr(r.d.LocalAddr)
	if r.network == "tcp4" || r.network == "udp4" || bound && local.Is4() {
		wanted &^= race.AAAA
	}
	if r.network == "tcp6" || r.network == "udp6" || bound && local.Is6() {
		wanted &^= race.A
	}
	r.useful = wanted
	if wanted == race.A|race.AAAA && r.net.v4 != r.net.v6 {
		if r.useful = race.AAAA; r.net.v4 {
			r.useful = race.A
		}
	}
	cfg.Types = wanted
	cfg.PreferV4 = wanted == race.A || wanted != race.AAAA && r.net.preferV4()
	if r.d.NAT64.IsValid() {
		cfg.Prefixes = []netip.Prefix{r.d.NAT64}
	}
	if wanted&race.AAAA == 0 || r.net.v4 || !r.net.v6 || r.resolver.Static(r.host) {
		return
	}
	// A host without IPv4 reaches it through a NAT64, or not at all.
	cfg.NoV4, cfg.PreferV4 = true, false
	if len(cfg.Prefixes) > 0 {
		r.useful |= race.A & wanted
		return
	}
	if wanted&race.A != 0 {
		cfg.Types = race.AAAA | race.Prefix64
		r.useful = cfg.Types | race.A // A only once a prefix is known
	}
}

func localAddr(a net.Addr) (netip.Addr, bool) {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return ap.Addr().Unmap(), ap.IsValid() && !ap.Addr().IsUnspecified()
}

func shuffle(rs []svcb.Record) {
	rand.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
}
