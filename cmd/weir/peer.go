package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
)

func runPeerAdd(c *call) error {
	key := c.String("key", "", "the peer's public `KEY`, as weir peer key prints it there")
	var endpoints, pods commas
	c.Var(&endpoints, "endpoint",
		"addresses of the peer: `HOST:PORT[,...]`; none: the peer connects")
	c.Var(&pods, "pods", "the ranges of its containers: `RANGE[,...]`")
	psk := c.String("psk", "", "read a pre-shared key from `FILE`, as wg genpsk writes it")
	keepalive := c.Duration("keepalive", 0,
		"send a packet at least every `TIME` (25s), to keep NATs on the path open")
	encrypt := c.Bool("encrypt", true,
		"false: send packets to the peer unencrypted, over a network of both hosts")
	name := c.leadingName()
	least := 1
	if name != "" {
		least = 0
	}
	if err := c.onNode(least, least); err != nil {
		return err
	}
	if name == "" {
		name = c.Arg(0)
	}
	if *key == "" {
		return c.wrong("missing --key; weir peer key prints it on the other host")
	}
	if *keepalive != keepalive.Truncate(time.Second) {
		return c.wrong("--keepalive %v is not a number of whole seconds", *keepalive)
	}
	a := api.AddPeer{Name: name, Key: *key, Endpoints: endpoints,
		Keepalive: int(keepalive.Seconds()), Plain: !*encrypt}
	for _, s := range pods {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return c.wrong("--pods %q is not a range; write 10.88.2.0/24", s)
		}
		a.Pods = append(a.Pods, p)
	}
	if *psk != "" {
		text, err := os.ReadFile(*psk)
		if err != nil {
			return c.failed(err)
		}
		a.Preshared = strings.TrimSpace(string(text))
	}
	var done api.Done
	if err := c.post("/v1/peers", a, &done); err != nil {
		return err
	}
	if done.Message != "" {
		fmt.Fprintf(c.stderr, "weir: %s\n", done.Message)
	}
	return nil
}

// leadingName removes and returns a first argument that is not a flag: flags may follow the name.
func (c *call) leadingName() string {
	if len(c.args) == 0 || strings.HasPrefix(c.args[0], "-") {
		return ""
	}
	name := c.args[0]
	c.args = c.args[1:]
	return name
}

// commas is a flag that takes several values, separated by commas or given one by one.
type commas []string

func (l *commas) String() string     { return strings.Join(*l, ",") }
func (l *commas) Set(s string) error { *l = append(*l, strings.Split(s, ",")...); return nil }

func runPeerRemove(c *call) error {
	release := c.Bool("release", false,
		"let packets for its containers take this host's other routes, unencrypted")
	name := c.leadingName()
	least := 1
	if name != "" {
		least = 0
	}
	if err := c.onNode(least, least); err != nil {
		return err
	}
	if name == "" {
		name = c.Arg(0)
	}
	var done api.Done
	if err := c.post("/v1/peers/remove", api.RemovePeer{Name: name, Release: *release},
		&done); err != nil {
		return err
	}
	if done.Message != "" {
		fmt.Fprintf(c.stderr, "weir: %s\n", done.Message)
	}
	return nil
}

func runPeerKey(c *call) error {
	asJSON := c.Bool("j", false,
		"print JSON, with the port and the ranges of this node's containers")
	if err := c.onNode(0, 0); err != nil {
		return err
	}
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

func runPeerList(c *call) error {
	asJSON := c.Bool("j", false, "print JSON")
	if err := c.onNode(0, 0); err != nil {
		return err
	}
	var all api.Peers
	if err := c.get("/v1/peers", &all); err != nil {
		return err
	}
	if *asJSON {
		return printJSON(c.out, all)
	}
	printPeers(c, all.Peers)
	for _, h := range all.Held {
		fmt.Fprintf(c.out, "unreachable, formerly of %s: %s\n", h.Name, join(h.Pods))
	}
	return nil
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
	if p.Problem != "" {
		remarks = append(remarks, p.Problem)
	}
	return strings.Join(remarks, ", ")
}
