package eyeballs

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/internal/race"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// target is the destination of a dial by name.
type target struct {
	network string
	address string // host:port as the caller gave it
	host    string // the name in ASCII
	port    uint16
}

// newRun prepares a dial of a name.
func newRun(ctx context.Context, d *Dialer, to target) *run {
	r := &run{d: d, target: to, begin: time.Now(), view: d.history().views.get(),
		resolver: d.resolver(), plain: d.plain(), winner: -1}
	// Sending a report never blocks for long: the dial reads reports until all goroutines have
	// ended.
	r.reports = make(chan report, 4)
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.entry, r.hasEntry = d.history().lookup(r.view.id, to.address)
	cfg := race.Config{Name: to.host, Port: to.port, Sort: r.sort, Shuffle: shuffle}
	r.chooseTypes(&cfg)
	if r.hasEntry {
		cfg.Delay = r.entry.attemptDelay
		// Do not wait for a family that did not answer the last time.
		v6, v4 := r.entry.waitFor(false, r.begin), r.entry.waitFor(true, r.begin)
		if !v6 && v4 && cfg.Types&dns.A != 0 {
			cfg.PreferV4 = true
		}
	}
	if d.HTTPS {
		cfg.Types |= dns.HTTPS
		r.useful |= dns.HTTPS
		cfg.Protocols = []string{"h2", svcb.DefaultProtocol}
		if d.TLS != nil && len(d.TLS.NextProtos) > 0 {
			cfg.Protocols = d.TLS.NextProtos
		}
		if to.port != 443 {
			cfg.ServiceName = "_" + strconv.Itoa(int(to.port)) + "._https." + to.host
		}
	}
	if d.TLS != nil {
		r.tls = d.tlsConfig(to.host)
	}
	if end, ok := ctx.Deadline(); ok {
		cfg.Limit = max(end.Sub(r.begin), 1)
	}
	r.machine = race.New(cfg)
	return r
}

// chooseTypes decides which questions are useful on this host (HEv3 section 4.1). The hosts file is
// read for both families in any case: it has loopback names.
func (r *run) chooseTypes(cfg *race.Config) {
	wanted := dns.A | dns.AAAA
	local, bound := localAddr(r.d.LocalAddr)
	if r.network == "tcp4" || r.network == "udp4" || bound && local.Is4() {
		wanted &^= dns.AAAA
	}
	if r.network == "tcp6" || r.network == "udp6" || bound && local.Is6() {
		wanted &^= dns.A
	}
	r.useful = wanted
	if wanted == dns.A|dns.AAAA && r.view.v4 != r.view.v6 {
		if r.useful = dns.AAAA; r.view.v4 {
			r.useful = dns.A
		}
	}
	cfg.Types = wanted
	cfg.PreferV4 = wanted == dns.A || wanted != dns.AAAA && r.view.preferV4()
	if r.d.NAT64.IsValid() {
		cfg.Prefixes = []netip.Prefix{r.d.NAT64}
	}
	if wanted&dns.AAAA == 0 || r.view.v4 || !r.view.v6 || r.resolver.Static(r.host) {
		return
	}
	// A host without IPv4 reaches IPv4 addresses through a NAT64 or not at all.
	cfg.NoV4, cfg.PreferV4 = true, false
	if len(cfg.Prefixes) > 0 {
		r.useful |= dns.A & wanted
		return
	}
	if wanted&dns.A != 0 {
		cfg.Types = dns.AAAA | dns.Prefix64
		r.useful = cfg.Types | dns.A // the machine queries A only once it has a prefix
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
