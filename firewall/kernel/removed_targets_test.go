package kernel

import (
	"net"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestWithdrawnEndsLater: an agent may end between the withdrawal of a port, or of a translated
// network, and the end of its connections. The next one ends them, also when it makes tables of
// other sizes, or is the one that withdraws.
func TestWithdrawnEndsLater(t *testing.T) {
	t.Parallel()
	for name, resized := range map[string]bool{"the same tables": false, "other sizes": true} {
		t.Run(name, func(t *testing.T) {
			g := newHidden(t, openRules)
			g.serve(g.server, 80)
			g.serve(g.outside, 80)
			g.serve(g.a.Node, 80)
			g.forward(8080, 80)
			g.publish(7070, 80)
			g.hide(fixed...)
			called, err := dialFrom(g.outside, "192.0.2.1:8080", testTimeout)
			g.must(err)
			defer called.Close()
			hidden, err := dialFrom(g.server, outsideAt[0], testTimeout)
			g.must(err)
			defer hidden.Close()
			published, err := dialFrom(g.outside, "192.0.2.1:7070", testTimeout)
			g.must(err)
			defer published.Close()
			for _, c := range []net.Conn{called, hidden, published} {
				g.must(echoWord(c, "before"))
			}
			o := firewall.DefaultOptions()
			if resized {
				o.MaxStates /= 2
			} else {
				g.must(prune(g.engine.objects.Published, func(k weirPublishedKey) bool {
					return k.Port != 8080
				}))
				g.must(prune(g.engine.objects.MaskedSources, func(weirTableKey) bool {
					return false
				}))
			}
			g.must(g.engine.Close())
			g.must(g.host.Do(func() (err error) {
				g.engine, err = openShared(t, Config{Dir: g.dir, Options: o})
				return err
			}))
			g.must(g.engine.SetInterfaces(g.ifs))
			g.must(g.host.Do(func() error { return g.engine.Load(compile(t, openRules)) }))
			for _, p := range []*podNode{g.a, g.b} {
				g.must(g.host.Do(func() error { return g.engine.SetEndpoint(p.endpoint) }))
			}
			g.publish(7070, 80)
			g.forward(9090, 80)
			g.masquerade(2000, 3000)
			nic := g.ifs[1].Index
			g.must(g.host.Do(func() error { _, err := g.engine.Attach(nic); return err }))
			if err := echoWord(published, "after"); err != nil {
				t.Errorf("through the port of the pod: %v", err)
			}
			if s, err := g.engine.Stats(); err != nil || s.Translations.Now != 1 {
				t.Errorf("%d translations, %v", s.Translations.Now, err)
			}
			g.nft("flush chain inet leaks in") // what is hidden no longer
			if echoWordFor(called, "after", shortWait) == nil {
				t.Error("a connection continues through a port that is forwarded no longer")
			}
			g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
			g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
		})
	}
}
