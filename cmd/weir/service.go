package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/packet"
)

func serviceAddCommand(c *call) action {
	port := c.Uint16("port", 0, "the `PORT` of the pods (default: that of the service)")
	asJSON := c.json("")
	c.takes(3, 3)
	return func() error {
		at, proto, err := parseService(c.Arg(1))
		if err != nil {
			return c.wrong("%v", err)
		}
		table, err := parseLabelTable(c.Arg(2))
		if err != nil {
			return c.wrong("%v", err)
		}
		var added api.Services
		if err := c.post("/v1/services", api.AddService{Name: c.Arg(0), Proto: proto, At: at,
			Table: table, Port: *port}, &added); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.out, added)
		}
		for i := range added.Services {
			s := &added.Services[i]
			fmt.Fprintf(c.out, "%s %s/%s: %s\n", s.Name, s.At, s.Proto, plural(len(s.Pods), "pod"))
		}
		return nil
	}
}

// parseService reads ADDRESS:PORT[/PROTO], an IPv6 address in brackets.
func parseService(text string) (at netip.AddrPort, proto packet.Proto, err error) {
	proto = packet.ProtoTCP
	end, name, named := strings.Cut(text, "/")
	if named {
		proto, err = packet.ParseProto(name)
	}
	if err == nil {
		at, err = netip.ParseAddrPort(end)
	}
	if err != nil {
		return at, proto, fmt.Errorf("%q is not an address and a port; write 10.200.0.10:80, "+
			"[fd00:200::10]:80, or 10.200.0.10:53/udp", text)
	}
	return at, proto, nil
}

// parseLabelTable reads table(KEY=VALUE), or KEY=VALUE, which needs no quotes in a shell.
func parseLabelTable(text string) (string, error) {
	label := text
	if rest, ok := strings.CutPrefix(text, "table("); ok {
		if label, ok = strings.CutSuffix(rest, ")"); !ok {
			return "", fmt.Errorf("%q is not table(KEY=VALUE)", text)
		}
	}
	if key, _, ok := strings.Cut(label, "="); !ok || key == "" {
		return "", fmt.Errorf("%q is not the table of a label; write table(KEY=VALUE) or KEY=VALUE",
			text)
	}
	return label, nil
}

func serviceRemoveCommand(c *call) action {
	c.takes(1, 1)
	c.complete(c.liveServices)
	return func() error {
		return c.post("/v1/services/remove", api.RemoveService{Name: c.Arg(0)}, &api.Done{})
	}
}

func serviceListCommand(c *call) action {
	asJSON := c.json("")
	return func() error {
		var list api.Services
		return c.printAnswer("/v1/services", &list, *asJSON, func() { c.printServices(list) })
	}
}

func (c *call) printServices(list api.Services) {
	t := tty.NewTable(c.out, "service", "address", "table", "pod", "to", "state", ">begun",
		">accepted", ">refused")
	for i := range list.Services {
		s := &list.Services[i]
		name, at, table := s.Name, fmt.Sprintf("%s/%s", s.At, s.Proto), s.Table
		if len(s.Pods) == 0 {
			t.Row(name, at, table, "-", "-", "no pod", "-", "-", "-")
		}
		for _, p := range s.Pods {
			t.Row(name, at, table, p.Pod, netip.AddrPortFrom(p.Addr, s.Port).String(), p.State,
				fmt.Sprint(p.Begun), fmt.Sprint(p.Accepted), fmt.Sprint(p.Refused))
		}
	}
	t.Flush()
}
