package rule

import (
	"net/netip"
	"strings"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

const natHint = "nat 1 config if eth0 redirect_port tcp 10.0.0.5:80 80"

// natCommands are what can be done with an instance.
var natCommands = map[string]bool{"config": true, "delete": true, "list": true, "show": true}

// nat reads nat N config ..., nat delete N, nat [N] show [config|log].
func (p *parser) nat(c *Command) error {
	_, command, err := p.numbered(c, "nat number", natCommands, "config", "log")
	if err != nil {
		return err
	}
	switch {
	case command.text == "":
		return p.fail(p.peek(), natHint, "the command is missing after nat")
	case command.text == "list" || command.text == "show":
		c.Number = 0
		if !p.accept("config") {
			p.accept("log")
		}
	case c.Number == 0:
		return p.fail(p.peek(), natHint, "the number of nat is missing")
	case command.text == "delete":
		c.Kind = CommandNATDelete
	default:
		c.Kind = CommandNAT
		return p.natConfig(c)
	}
	return p.end("nat " + command.text)
}

// refusedNAT is why a part of a configuration is not taken.
var refusedNAT = refused{
	"redirect_proto": "redirect_addr gives a host all protocols of an address",
	"reverse":        "leave it out, and name the interface of the other side",
	"proxy_only":     "leave the rule out: nothing is translated then",
	"skip_global":    "rules name their instance by number",
	"port_range":     "[pods] masquerade_ports of weir.toml has the ports for all instances",
	"udp_eim":        "a flow of UDP is translated for its own two ends only",
	"punch_fw":       "write the rules that allow the data connections",
	"tablearg":       refusedOptions["tablearg"],
	"global":         "rules name their instance by number",
}

// natConfig reads what follows "nat N config". A new configuration replaces the one before.
func (p *parser) natConfig(c *Command) error {
	x := &NAT{}
	for !p.done() {
		t := p.next()
		var err error
		switch t.text {
		case "if", "ip":
			if x.Iface != "" || x.Addr.IsValid() {
				return p.fail(t, "leave one of them out", "nat has one interface or one address")
			}
		}
		switch t.text {
		case "if":
			var name token
			if name, err = p.need("interface", "nat 1 config if eth0"); err == nil {
				x.Iface, err = name.text, p.natInterface(name)
			}
		case "ip":
			x.Addr, err = p.natAddr("ip 203.0.113.9")
		case "log", "same_ports", "reset": // what ipfw does with its counts, and Weir always does
		case "deny_in":
			x.DenyIn = true
		case "unreg_only":
			x.Unreg = true
		case "unreg_cgn":
			x.Unreg, x.UnregCGN = true, true
		case "redirect_port":
			err = p.redirectPort(x)
		case "redirect_addr":
			err = p.redirectAddr(x)
		default:
			if why, known := refusedNAT[t.text]; known {
				return p.fail(t, why, "%s of nat is a part of ipfw that Weir does not have",
					quote(t.text))
			}
			return p.fail(t, natHint, "unknown word %s of nat", quote(t.text))
		}
		if err != nil {
			return err
		}
	}
	if x.Iface == "" && !x.Addr.IsValid() {
		return p.fail(p.peek(), natHint, "nat needs if INTERFACE or ip ADDRESS")
	}
	c.NAT = x
	return nil
}

// natInterface checks the name of an interface.
func (p *parser) natInterface(t token) error {
	if len(t.text) > maxInterface {
		return p.fail(t, "", "interface name is longer than %d bytes", maxInterface)
	}
	return p.name(t, "interface name", ":/@+")
}

// natAddr reads an IPv4 address that packets are routed to.
func (p *parser) natAddr(hint string) (netip.Addr, error) {
	t, err := p.need("address", hint)
	if err != nil {
		return netip.Addr{}, err
	}
	return p.natHost(t)
}

func (p *parser) natHost(t token) (netip.Addr, error) {
	if strings.Contains(t.text, ",") {
		return netip.Addr{}, p.fail(t, "one address for each; weir service add spreads flows over "+
			"pods", "several addresses of nat are a part of ipfw that Weir does not have")
	}
	if t.text == "me" || t.text == "any" {
		return netip.Addr{}, p.fail(t, natHint, "nat needs one address, not %s", quote(t.text))
	}
	a, err := p.addr(t)
	if err == nil && !a.Is4() {
		return a, p.fail(t, "", "nat translates IPv4 only")
	}
	if err == nil && !a.IsGlobalUnicast() {
		return a, p.fail(t, "", "%s is not an address that packets are routed to", quote(t.text))
	}
	return a, err
}

const redirectHint = "redirect_port tcp 10.0.0.5:80 80, redirect_port udp 10.0.0.5:5000-5010 " +
	"203.0.113.9:5000-5010"

// redirectPort reads PROTO TARGET:PORT[-PORT] [ALIAS:]PORT[-PORT].
func (p *parser) redirectPort(x *NAT) error {
	t, err := p.need("protocol", redirectHint)
	if err != nil {
		return err
	}
	var r NATPort
	switch t.text {
	case "tcp":
		r.Proto = uint8(packet.ProtoTCP)
	case "udp":
		r.Proto = uint8(packet.ProtoUDP)
	default:
		return p.fail(t, "tcp or udp; redirect_addr gives a host all protocols of an address",
			"ports of %s cannot be redirected", quote(t.text))
	}
	at, err := p.need("target", redirectHint)
	if err != nil {
		return err
	}
	host, to, err := p.natEnd(at)
	if err != nil {
		return err
	}
	if !host.IsValid() {
		return p.fail(at, redirectHint, "the target has no address")
	}
	if at, err = p.need("port", redirectHint); err != nil {
		return err
	}
	alias, from, err := p.natEnd(at)
	switch {
	case err != nil:
		return err
	case from.Hi-from.Lo != to.Hi-to.Lo:
		return p.fail(at, redirectHint, "%d public ports, but %d target ports", from.Hi-from.Lo+1,
			to.Hi-to.Lo+1)
	case alias == host && alias.IsValid():
		return p.fail(at, "", "the public address and the target are the same")
	}
	if next := p.peek(); next.text != "" && next.text[0] >= '0' && next.text[0] <= '9' {
		return p.fail(next, "write who may come in into the rule: from "+next.text,
			"the remote end of redirect_port is a part of ipfw that Weir does not have")
	}
	r.Alias, r.Port, r.Count = alias, uint16(from.Lo), int(from.Hi-from.Lo)+1
	r.To = netip.AddrPortFrom(host, uint16(to.Lo))
	n := r.Count
	for _, o := range x.Ports {
		n += o.Count
		if o.Proto == r.Proto && o.Alias == r.Alias && r.Port <= o.Port+uint16(o.Count-1) &&
			o.Port <= r.Port+uint16(r.Count-1) {
			return p.fail(at, "", "a port of it is redirected already")
		}
	}
	if n > program.MaxNATPorts {
		return p.fail(at, "", "%d redirected ports; at most %d", n, program.MaxNATPorts)
	}
	x.Ports = append(x.Ports, r)
	return nil
}

// natEnd reads [ADDRESS:]PORT[-PORT].
func (p *parser) natEnd(t token) (a netip.Addr, ports Range, err error) {
	if strings.Contains(t.text, ",") {
		_, err = p.natHost(t)
		return a, ports, err
	}
	if i := strings.LastIndexByte(t.text, ':'); i >= 0 {
		if a, err = p.natHost(t.sub(0, i)); err != nil {
			return a, ports, err
		}
		t = t.sub(i+1, len(t.text))
	}
	if ports, err = p.portRange(p.decNum, t); err == nil && ports.Lo == 0 {
		err = p.fail(t, redirectHint, "ports go from 1 to 65535")
	}
	return a, ports, err
}

// redirectAddr reads LOCAL PUBLIC.
func (p *parser) redirectAddr(x *NAT) (err error) {
	const hint = "redirect_addr 10.0.0.5 203.0.113.10"
	at := p.peek()
	var r NATAddr
	if r.Local, err = p.natAddr(hint); err != nil {
		return err
	}
	if t := p.peek(); t.text == "0.0.0.0" {
		return p.fail(t, "name the address, or single ports by redirect_port", "all that comes in "+
			"for one host is a part of ipfw that Weir does not have")
	}
	if r.Public, err = p.natAddr(hint); err != nil {
		return err
	}
	if r.Local == r.Public {
		return p.fail(at, hint, "the public address and the target are the same")
	}
	for _, o := range x.Addrs {
		if o.Local == r.Local || o.Public == r.Public {
			return p.fail(at, "", "one of the addresses is redirected already")
		}
	}
	if len(x.Addrs) == program.MaxNATPorts {
		return p.fail(at, "", "at most %d redirected addresses", program.MaxNATPorts)
	}
	x.Addrs = append(x.Addrs, r)
	return nil
}
