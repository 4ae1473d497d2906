package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
)

func peerAddCommand(c *call) action {
	key := c.String("key", "", "the peer's public `KEY`, as weir peer key prints it there")
	c.requires("key")
	pods := c.StringSlice("pods", nil, "the ranges of its containers: `RANGE[,...]`")
	c.requires("pods")
	endpoints := c.StringSlice("endpoint", nil,
		"addresses of the peer: `HOST:PORT[,...]`; none: the peer connects")
	psk := c.String("psk", "", "read a pre-shared key from `FILE`, as wg genpsk writes it")
	keepalive := c.Duration("keepalive", 0,
		"send a packet at least every `TIME` (25s), to keep NATs on the path open")
	encrypt := c.Bool("encrypt", true,
		"false: send packets to the peer unencrypted, over a network of both hosts")
	c.takes(1, 1)
	c.complete(c.livePeers)
	return func() error {
		if *keepalive != keepalive.Truncate(time.Second) {
			return c.wrong("--keepalive %v is not a number of whole seconds", *keepalive)
		}
		a := api.AddPeer{Name: c.Arg(0), Key: *key, Endpoints: *endpoints,
			Keepalive: int(keepalive.Seconds()), Plain: !*encrypt}
		for _, s := range *pods {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return c.wrong("--pods %q is not a range; write 10.88.2.0/24", s)
			}
			a.Pods = append(a.Pods, p)
		}
		if *psk != "" {
			_, text, err := c.readFile(*psk)
			if err != nil {
				return c.failed(err)
			}
			a.Preshared = strings.TrimSpace(text)
		}
		return c.changePeers("/v1/peers", a)
	}
}

// changePeers requests a change of the peers and prints what is to be known of it.
func (c *call) changePeers(path string, request any) error {
	var done api.Done
	if err := c.post(path, request, &done); err != nil {
		return err
	}
	for line := range strings.Lines(done.Message) {
		fmt.Fprintf(c.stderr, "weir: %s\n", c.show(strings.TrimSuffix(line, "\n")))
	}
	return nil
}

func peerRemoveCommand(c *call) action {
	release := c.Bool("release", false,
		"let packets for its containers take this host's other routes, unencrypted")
	c.takes(1, 1)
	c.complete(c.livePeers)
	return func() error {
		return c.changePeers("/v1/peers/remove",
			api.RemovePeer{Name: c.Arg(0), Release: *release})
	}
}

func peerKeyCommand(c *call) action {
	asJSON := c.BoolP("json", "j", false,
		"print JSON, with the port and the ranges of this node's containers")
	return func() error {
		var k api.PeerKey
		if err := c.post("/v1/peers/key", nil, &k); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.out, k)
		}
		fmt.Fprintln(c.out, k.Key)
		return nil
	}
}

func peerListCommand(c *call) action {
	asJSON := c.json("")
	return func() error {
		var all api.Peers
		return c.printAnswer("/v1/peers", &all, *asJSON, func() {
			printPeers(c, all.Peers)
			for _, h := range all.Held {
				fmt.Fprintf(c.out, "unreachable, formerly of %s: %s\n", c.show(h.Name),
					join(h.Pods))
			}
		})
	}
}

// handshakeAge is the time since the last handshake.
func handshakeAge(p api.Peer) string {
	switch {
	case !p.Encrypted:
		return ""
	case p.Handshake == nil:
		return "never"
	}
	return time.Since(*p.Handshake).Round(time.Second).String() + " ago"
}

func rttText(p api.Peer) string {
	if p.RTTSeconds == 0 {
		return ""
	}
	return time.Duration(p.RTTSeconds * float64(time.Second)).Round(10 * time.Microsecond).String()
}

func peerRemarks(p api.Peer) string {
	var remarks []string
	if !p.Encrypted {
		remarks = append(remarks, "not encrypted")
	}
	if p.Preshared {
		remarks = append(remarks, "pre-shared key")
	}
	if line := waitedInVain(p.DroppedQueueFull, p.DroppedNoSession); line != "" {
		remarks = append(remarks, line)
	}
	if p.Problem != "" {
		remarks = append(remarks, p.Problem)
	}
	return strings.Join(remarks, ", ")
}

// waitedInVain counts the packets that were dropped while they waited for a session; "" for none.
func waitedInVain(full, late uint64) string {
	var all []string
	if full > 0 {
		all = append(all, fmt.Sprintf("%d as too many waited", full))
	}
	if late > 0 {
		all = append(all, fmt.Sprintf("%d as none came", late))
	}
	if all == nil {
		return ""
	}
	return "dropped waiting for a session: " + strings.Join(all, ", ")
}
