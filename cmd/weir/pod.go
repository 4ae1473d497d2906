package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

func podAttachCommand(c *call) action {
	name := c.String("name", "",
		"`NAME` of the pod, in rules via pod:NAME (default: the last part of NETNS)")
	mtu := c.Int("mtu", 0, "MTU of the interface in `BYTES` (default: the node's)")
	labels := c.StringArray("label", nil,
		"add `KEY=VALUE`, in rules table(KEY=VALUE); may be given several times")
	publish := c.StringArray("publish", nil,
		"publish a port of the pod on the host, `[ADDRESS:]HOST:PORT[/PROTO]`; may be given "+
			"several times")
	addrs := c.StringArray("addr", nil, "request `ADDRESS`; one of each family may be given")
	c.takes(1, 1)
	return func() error {
		netns, err := netnsPath(c.Arg(0))
		if err != nil {
			return c.failed(err)
		}
		a := pod.Spec{Container: filepath.Base(c.Arg(0)), Name: *name, Netns: netns, MTU: *mtu,
			Labels: map[string]string{}}
		if pid, ok := strings.CutPrefix(c.Arg(0), "pid:"); ok {
			a.Container = "pid" + pid
		}
		for _, l := range *labels {
			key, value, ok := strings.Cut(l, "=")
			if !ok {
				return c.wrong("label %q is not KEY=VALUE", l)
			}
			a.Labels[key] = value
		}
		for _, p := range *publish {
			pub, err := parsePublish(p)
			if err != nil {
				return c.wrong("%v", err)
			}
			a.Publish = append(a.Publish, pub)
		}
		for _, s := range *addrs {
			addr, err := netip.ParseAddr(s)
			if err != nil {
				return c.wrong("%q is not an address", s)
			}
			a.Addrs = append(a.Addrs, addr.Unmap())
		}
		var p api.Pod
		if err := c.post("/v1/pods", a, &p); err != nil {
			return err
		}
		if err := checkAttached(&p, &a); err != nil {
			return c.failed(err)
		}
		fmt.Fprintf(c.out, "%s %s\n", c.show(p.Name), join(p.Addrs))
		return nil
	}
}

// netnsPath finds a network namespace: a path, a name of `ip netns`, or pid:N.
func netnsPath(word string) (string, error) {
	path := filepath.Join("/run/netns", word)
	if pid, ok := strings.CutPrefix(word, "pid:"); ok {
		path = filepath.Join("/proc", pid, "ns/net")
	} else if strings.Contains(word, "/") {
		var err error
		if path, err = filepath.Abs(word); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("network namespace %s: %w; give a name that 'ip netns list' shows, "+
			"a path, or pid:N", word, err)
	}
	return path, nil
}

// parsePublish reads [ADDRESS:]HOSTPORT:PORT[/PROTO] as container tools write it, an IPv6 address
// in brackets.
func parsePublish(s string) (pod.Publish, error) {
	p := pod.Publish{Proto: packet.ProtoTCP}
	bad := fmt.Errorf("cannot publish %q: write HOSTPORT:PORT, ADDRESS:HOSTPORT:PORT, and append "+
		"/udp or /sctp for these", s)
	rest, name, ok := strings.Cut(s, "/")
	if ok {
		proto, err := packet.ParseProto(name)
		if err != nil {
			return p, bad
		}
		p.Proto = proto
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return p, bad
	}
	host, port := rest[:i], rest[i+1:]
	if j := strings.LastIndexByte(host, ':'); j >= 0 {
		a, err := netip.ParseAddr(strings.Trim(host[:j], "[]"))
		if err != nil {
			return p, bad
		}
		p.Host, host = a.Unmap(), host[j+1:]
	}
	hostPort, err := strconv.ParseUint(host, 10, 16)
	if err != nil {
		return p, bad
	}
	inner, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return p, bad
	}
	p.HostPort, p.Port = uint16(hostPort), uint16(inner)
	return p, nil
}

func podDetachCommand(c *call) action {
	c.takes(1, 1)
	c.complete(c.livePods)
	return func() error {
		p, err := c.podNamed(c.Arg(0))
		if err != nil {
			return err
		}
		return c.post("/v1/pods/detach", api.Detach{Container: p.Container, IfName: p.IfName},
			&api.Done{})
	}
}

type notFound struct{ name string }

func (e notFound) Error() string { return "no such pod: " + e.name }

// Hint is the command that lists the names.
func (notFound) Hint() string { return "weir pod list" }

func podListCommand(c *call) action {
	asJSON := c.json("")
	return func() error {
		var pods api.Pods
		return c.printAnswer("/v1/pods", &pods, *asJSON, func() {
			t := tty.NewTable(c.out, "name", "addresses", "interface", "labels", "published",
				">packets in/out", ">bytes in/out", ">drops in/out")
			for _, p := range pods.Pods {
				t.Row(p.Name, join(p.Addrs), p.HostIf, labelText(p.Labels), publishText(p.Publish),
					pair(p.Packets), pair(p.Bytes), pair(p.Drops))
			}
			t.Flush()
		})
	}
}

func join[T fmt.Stringer](list []T) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = v.String()
	}
	return strings.Join(parts, ",")
}

func pair(n [2]uint64) string { return fmt.Sprintf("%d/%d", n[0], n[1]) }

func labelText(labels map[string]string) string {
	var parts []string
	for k, v := range labels {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func publishText(list []pod.Publish) string {
	var parts []string
	for _, p := range list {
		host := fmt.Sprint(p.HostPort)
		if p.Host.IsValid() {
			host = netip.AddrPortFrom(p.Host, p.HostPort).String()
		}
		parts = append(parts, fmt.Sprintf("%s:%d/%s", host, p.Port, p.Proto))
	}
	return strings.Join(parts, ",")
}
