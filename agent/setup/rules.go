package setup

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// local are the ports of services that are rarely meant for the whole internet. Their rules let in
// the host's own networks alone.
var local = map[uint16]string{
	111: "portmapper", 137: "NetBIOS", 138: "NetBIOS", 139: "SMB", 389: "LDAP", 445: "SMB",
	515: "printing", 631: "printing", 873: "rsync", 1433: "SQL Server", 1883: "MQTT", 2049: "NFS",
	2375: "Docker's API", 2379: "etcd", 2380: "etcd", 3306: "MySQL", 3389: "remote desktop",
	5353: "mDNS", 5355: "LLMNR", 5432: "PostgreSQL", 5900: "VNC", 5984: "CouchDB", 6379: "Redis",
	6443: "Kubernetes", 8086: "InfluxDB", 9090: "Prometheus", 9100: "metrics",
	9200:  "Elasticsearch",
	10250: "kubelet", 11211: "memcached", 27017: "MongoDB",
}

// groups are the UDP ports of services that clients ask by broadcast or multicast.
var groups = map[uint16]bool{67: true, 137: true, 138: true, 547: true, 1900: true, 3702: true,
	5353: true, 5355: true}

// text is a rule file in the making.
type text struct {
	b strings.Builder
}

func (t *text) note(format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		t.b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
}

func (t *text) rule(format string, args ...any) {
	t.b.WriteString("add " + fmt.Sprintf(format, args...) + "\n")
}

func (t *text) gap() { t.b.WriteString("\n") }

// Rules returns the text of a rule file that keeps what the host serves now, and the session that
// asks, and refuses the rest.
func Rules(f Facts) string {
	t := &text{}
	t.note("Rules of this host, first written by `weir setup` from what it found. They are\n" +
		"yours now: delete what should not be reached. Try a change with\n" +
		"  weir fw load --confirm 30s FILE\nWhat no rule allows is refused.")
	t.gap()
	t.note("Packets of flows that a rule below has let begin.")
	t.rule("100 check-state")
	t.gap()
	t.note("The host itself may open any connection.")
	t.rule("200 allow ip from me to any out keep-state")
	t.gap()
	session(t, f)
	services(t, f)
	icmp(t)
	guests(t, f)
	notes(t, f)
	return t.b.String()
}

// session lets the owner in.
func session(t *text, f Facts) {
	if f.Session == nil {
		return
	}
	s := f.Session
	t.note("Your own session: it comes from %s. Write that address instead of any to let in\n"+
		"only yourself.", plain(s.From.Addr()))
	t.rule("300 allow tcp from any to me %d in setup keep-state", s.To.Port())
	t.gap()
}

// services lets in what the host serves now.
func services(t *text, f Facts) {
	number := 400
	inside, any := networks(f), false
	for _, s := range merged(f) {
		name := s.Program
		if name == "" {
			name = "no program: the kernel, or another user's"
		}
		switch {
		case s.Address.IsLoopback():
			continue
		case s.Proto == "udp" && (s.Port == 68 || s.Port == 546):
			continue // the DHCP client
		case isClient(s, f):
			continue
		case f.Session != nil && s.Proto == "tcp" && s.Port == f.Session.To.Port():
			continue
		}
		if !any {
			t.note("What listens on this host, by port.")
			any = true
		}
		to := "me"
		if !s.Address.IsUnspecified() {
			to = plain(s.Address)
		} else if s.Address.Is6() && !s.Both {
			to = "me6"
		}
		from, extra := "any", ""
		if what := local[s.Port]; what != "" && inside != "" {
			from, extra = inside, ": "+what+", for the host's own networks"
		}
		state := "keep-state"
		if s.Proto == "tcp" {
			state = "setup keep-state"
		}
		if s.Address.IsMulticast() || s.Proto == "udp" && s.Address.IsUnspecified() &&
			groups[s.Port] {
			to = "any"
		}
		t.rule("%d allow %s from %s to %s %d in %s // %s%s", number, s.Proto, from, to, s.Port,
			state, clean(name), extra)
		number += 10
	}
	if left := len(f.Services) - mostListeners; left > 0 {
		t.note("%d sockets more listen, at higher ports. They are left out.", left)
		any = true
	}
	if any {
		t.gap()
	}
}

// isClient reports whether a UDP socket is one of a client, by its port. A socket without a program
// is the kernel's: WireGuard.
func isClient(s Listener, f Facts) bool {
	return s.Proto == "udp" && s.Port >= f.FirstLocalPort && f.FirstLocalPort > 0 &&
		s.Program != "" && s.Port != f.TunnelPort
}

// icmp lets in what every connection needs of ICMP.
func icmp(t *text) {
	t.note("Errors of ICMP, which path MTU discovery needs, and ping.")
	t.rule("2000 allow icmp from any to me icmptypes 3,8,11,12 in")
	t.rule("2010 allow ipv6-icmp from any to me6 icmp6types 1,2,3,4,128 in")
	t.gap()
}

// guests lets pass what crosses a bridge and is for other machines.
func guests(t *text, f Facts) {
	number := 3000
	for _, i := range f.Interfaces {
		if i.Bridge == "" || !i.Guests || !i.Guarded {
			continue
		}
		t.note("%s is a port of the bridge %s, with other machines behind it: what is theirs.",
			clean(i.Name), clean(i.Bridge))
		if !isName(i.Name) {
			t.note("NOT ALLOWED: rules cannot say the name of %s. Rename it, and allow it with\n"+
				"  add %d allow ip from not me to not me via NAME", clean(i.Name), number)
		} else {
			t.rule("%d allow ip from not me to not me via %s", number, i.Name)
		}
		t.gap()
		number += 10
	}
}

// isName reports whether a rule reads the name of an interface as just that. The kernel also allows
// the characters of comments, lists and patterns, and words that mean something else.
func isName(name string) bool {
	for _, c := range name {
		alphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alphanumeric && !strings.ContainsRune("_.-@+", c) {
			return false
		}
	}
	_, err := netip.ParseAddr(name)
	return name != "" && name != "any" && err != nil
}

// notes says what else was found.
func notes(t *text, f Facts) {
	var makers []string
	for _, i := range f.Interfaces {
		if i.Maker != "" && !i.Guarded && !slices.Contains(makers, i.Maker) {
			makers = append(makers, i.Maker)
		}
	}
	if len(makers) > 0 {
		t.note("Interfaces that were made for containers are not guarded (%s).\n"+
			"What containers send leaves with the host's address, by rule 200. A published port\n"+
			"needs a rule as a service of the host does.", strings.Join(makers, ", "))
	} else if f.Forwards {
		t.note("This host forwards packets between networks, and no rule above lets them pass. " +
			"If\n" +
			"it is a router, allow its networks, for example:\n" +
			"  add 4000 allow ip from 10.0.0.0/8 to any keep-state")
	}
	for _, other := range f.Firewalls {
		t.note("Another firewall is active, %s: a packet has to pass both.", clean(other))
	}
	t.note("DHCP, ARP and neighbour discovery pass before the rules. The loopback is not guarded.")
}

// merged returns the services by protocol and port, each once. One that listens on all addresses
// covers the others; one on all addresses of both families is one.
func merged(f Facts) (all []Listener) {
	list := slices.Clone(f.Services)
	slices.SortStableFunc(list, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto),
			-compareWide(a, b), a.Address.Compare(b.Address))
	})
	for _, s := range list[:min(len(list), mostListeners)] {
		covered := slices.ContainsFunc(all, func(o Listener) bool {
			return o.Proto == s.Proto && o.Port == s.Port && covers(o, s)
		})
		if !covered {
			all = append(all, s)
		}
	}
	for i := range all { // 0.0.0.0 and a :: of its own are both families
		for j := range all {
			a, b := &all[i], &all[j]
			if i != j && a.Proto == b.Proto && a.Port == b.Port && a.Address.IsUnspecified() &&
				b.Address.IsUnspecified() {
				a.Both = true
			}
		}
	}
	return slices.CompactFunc(all, func(a, b Listener) bool {
		return a.Proto == b.Proto && a.Port == b.Port && a.Both && b.Both
	})
}

// mostListeners bounds the sockets that rules are written for, those with the lowest ports: any
// user of the host can open more, and numbers of rules end at 65,534.
const mostListeners = 4096

// width is how much a service covers.
func width(s Listener) int {
	switch {
	case s.Address.IsUnspecified() && s.Both:
		return 3
	case s.Address.IsUnspecified():
		return 2
	}
	return 1
}

func compareWide(a, b Listener) int { return cmp.Compare(width(a), width(b)) }

func covers(o, s Listener) bool {
	if o.Address == s.Address {
		return true
	}
	return o.Address.IsUnspecified() && (o.Both || o.Address.Is4() == s.Address.Is4())
}

// networks are those that the host is connected to by interfaces that are guarded, as a list of a
// rule.
func networks(f Facts) string {
	var all []string
	for _, i := range f.Interfaces {
		for _, p := range i.Networks {
			if i.Guarded && p.Bits() < p.Addr().BitLen() {
				all = append(all, p.Masked().String())
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// plain is an address as rules have it.
func plain(a netip.Addr) string { return a.Unmap().WithZone("").String() }

// clean keeps a name of another program from ending a comment or a line.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r > 0x7e {
			return '?'
		}
		return r
	}, name)
}
