package hostfacts

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/setup"
	"github.com/weirnet/weir/internal/nl"
)

// Gather finds out what the rules for this host are made of. guarded are the settings of a node.
// What cannot be read, without root for instance, is left out.
func Gather(guarded host.Settings) (setup.Facts, error) {
	f := setup.Facts{Services: listeners("/proc"), Firewalls: firewalls("/")}
	if s, ok := Session(); ok {
		f.Session = &s
	}
	ports := strings.Fields(read("/proc/sys/net/ipv4/ip_local_port_range"))
	if len(ports) == 2 {
		n, _ := strconv.ParseUint(ports[0], 10, 16)
		f.FirstLocalPort = uint16(n)
	}
	for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		f.Forwards = f.Forwards || strings.TrimSpace(read("/proc/sys/net/"+key)) == "1"
	}
	var err error
	f.Interfaces, err = interfaces(guarded)
	return f, err
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// interfaces lists the interfaces with their networks.
func interfaces(guarded host.Settings) ([]setup.Interface, error) {
	conn, err := nl.Open(nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	links, err := conn.Links()
	if err != nil {
		return nil, err
	}
	names, guests := map[int]string{}, map[int]bool{}
	for _, l := range links {
		names[l.Index] = l.Name
		if l.Master != 0 && l.Kind != "device" { // a tap or veth: the port of another machine
			guests[l.Master] = true
		}
	}
	all := []setup.Interface{}
	for _, l := range links {
		i := setup.Interface{Name: l.Name, Guarded: guarded.Guards(l.Name), Bridge: names[l.Master],
			Guests: guests[l.Master] && l.Kind == "device"}
		if !i.Guarded {
			i.Maker = host.InterfaceMaker(l.Name)
		}
		addrs, err := conn.Addrs(l.Index)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			i.Networks = append(i.Networks, a.Prefix)
		}
		all = append(all, i)
	}
	return all, nil
}

// listeners lists the TCP and SCTP sockets that listen and the UDP sockets that are not connected,
// with their programs: proc_pid_net(5).
func listeners(proc string) []setup.Listener {
	programs := programsOf(proc)
	only6 := map[string]bool{}
	all := []setup.Listener{}
	add := func(s setup.Listener) {
		key := s.Proto + strconv.Itoa(int(s.Port))
		if s.Address == netip.IPv4Unspecified() {
			only6[key] = true
		}
		// IPV6_V6ONLY is not in the files: an IPv6 socket may take IPv4, too. One beside another of
		// IPv4 on the same port does not.
		s.Both = s.Address == netip.IPv6Unspecified() && !only6[key]
		all = append(all, s)
	}
	for _, file := range []struct{ name, proto, state string }{
		{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, {"udp", "udp", "07"}, {"udp6", "udp", "07"},
	} {
		for line := range strings.SplitSeq(read(filepath.Join(proc, "net", file.name)), "\n") {
			s, inode, ok := socketOf(line, file.state)
			if !ok {
				continue
			}
			s.Proto, s.Program = file.proto, programs[inode]
			add(s)
		}
	}
	endpoints := nl.ParseSCTPListeners(read(filepath.Join(proc, "net", "sctp", "eps")))
	slices.SortStableFunc(endpoints, func(a, b nl.Listener) int { // IPv4 first
		return cmp.Compare(a.Local.Addr().BitLen(), b.Local.Addr().BitLen())
	})
	for _, e := range endpoints {
		add(setup.Listener{Proto: "sctp", Address: e.Local.Addr(), Port: e.Local.Port(),
			Program: programs[strconv.Itoa(int(e.Inode))]})
	}
	return all
}

// socketOf reads a line of such a file: "0: 0100007F:1F90 00000000:0000 0A ... inode ...".
func socketOf(line, state string) (s setup.Listener, inode string, ok bool) {
	w := strings.Fields(line)
	if len(w) < 10 || w[3] != state {
		return s, "", false
	}
	address, port, _ := strings.Cut(w[1], ":")
	a, fine := addressOf(address)
	n, err := strconv.ParseUint(port, 16, 16)
	if !fine || err != nil || n == 0 {
		return s, "", false
	}
	s.Address, s.Port = a, uint16(n)
	return s, w[9], true
}

// addressOf reads an address as /proc/net has it: words of 32 bits in the order of the machine,
// which is little-endian on all that Weir runs on.
func addressOf(hex string) (netip.Addr, bool) {
	if len(hex) != 8 && len(hex) != 32 {
		return netip.Addr{}, false
	}
	var b []byte
	for ; hex != ""; hex = hex[8:] {
		n, err := strconv.ParseUint(hex[:8], 16, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	a, ok := netip.AddrFromSlice(b)
	return a.Unmap(), ok
}

// programsOf returns the names of the programs that hold sockets, by inode.
func programsOf(proc string) map[string]string {
	all := map[string]string{}
	fds, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	names := map[string]string{}
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		inode, ok := strings.CutPrefix(to, "socket:[")
		if !ok {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		if _, known := names[dir]; !known {
			names[dir] = strings.TrimSpace(read(filepath.Join(dir, "comm")))
		}
		all[strings.TrimSuffix(inode, "]")] = names[dir]
	}
	return all
}
