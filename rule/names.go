package rule

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weirnet/weir/packet"
)

// Names gives numbers to the names of services and protocols beyond those that the package knows by
// itself. The package never reads a file on its own: rules mean the same on every machine unless
// the caller says otherwise. A nil Names adds nothing.
type Names struct {
	services  map[string]uint16
	protocols map[string]uint8
}

// ReadServices adds the names of a file like /etc/services. The first port of a name counts; names
// that the package knows keep their port.
func (n *Names) ReadServices(r io.Reader) error { return readNames(r, &n.services, 16) }

// ReadProtocols adds the names of a file like /etc/protocols.
func (n *Names) ReadProtocols(r io.Reader) error { return readNames(r, &n.protocols, 8) }

// readNames adds the names of each line "name number[/...] alias..." whose number has at most so
// many bits. Lines that are not of this form are skipped, as the C library does.
func readNames[T uint8 | uint16](r io.Reader, names *map[string]T, bits int) error {
	if *names == nil {
		*names = map[string]T{}
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) < 2 {
			continue
		}
		word, _, _ := strings.Cut(fields[1], "/")
		number, err := strconv.ParseUint(word, 10, bits)
		if err != nil {
			continue
		}
		fields[1] = fields[0] // the aliases follow
		for _, name := range fields[1:] {
			if _, known := (*names)[name]; !known {
				(*names)[name] = T(number)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading names: %w", err)
	}
	return nil
}

func (n *Names) service(name string) (uint16, bool) {
	if port, ok := services[name]; ok {
		return port, true
	}
	if n == nil {
		return 0, false
	}
	port, ok := n.services[name]
	return port, ok
}

func (n *Names) protocol(name string) (uint8, bool) {
	if proto, ok := packet.ProtoNumber(name); ok {
		return uint8(proto), true
	}
	if proto, ok := protocolAliases[name]; ok {
		return proto, true
	}
	if n == nil {
		return 0, false
	}
	proto, ok := n.protocols[name]
	return proto, ok
}

// services are ports that administrators call by name. A name has one port here whatever the
// protocol.
var services = map[string]uint16{
	"echo": 7, "discard": 9, "daytime": 13, "qotd": 17, "chargen": 19, "ftp-data": 20, "ftp": 21,
	"ssh": 22, "telnet": 23,
	"smtp": 25, "mail": 25, "time": 37, "whois": 43, "nicname": 43, "tacacs": 49, "domain": 53,
	"hosts2-ns": 81, "cifs": 3020, "aol": 5190, "msnp": 1863, "pdl-datastream": 9100,
	"bootps": 67, "bootpc": 68, "tftp": 69,
	"gopher": 70, "finger": 79, "http": 80, "www": 80, "kerberos": 88, "kerberos-sec": 88,
	"pop3": 110, "pop-3": 110, "sunrpc": 111, "rpcbind": 111,
	"portmapper": 111, "auth": 113, "ident": 113, "nntp": 119, "ntp": 123, "msrpc": 135,
	"epmap": 135, "netbios-ns": 137,
	"netbios-dgm": 138, "netbios-ssn": 139, "imap": 143, "imap2": 143, "snmp": 161, "snmptrap": 162,
	"snmp-trap": 162, "bgp": 179, "irc": 194,
	"ldap": 389, "svrloc": 427, "https": 443, "microsoft-ds": 445, "kpasswd": 464,
	"submissions": 465, "smtps": 465, "isakmp": 500,
	"exec": 512, "login": 513, "who": 513, "shell": 514, "syslog": 514, "printer": 515, "talk": 517,
	"ntalk": 518, "route": 520, "router": 520, "ripng": 521,
	"dhcpv6-client": 546, "dhcpv6-server": 547, "rtsp": 554, "nntps": 563, "submission": 587,
	"ipp": 631, "ldaps": 636, "ldp": 646,
	"rsync": 873, "ftps-data": 989, "ftps": 990, "telnets": 992, "imaps": 993, "pop3s": 995,
	"socks": 1080, "openvpn": 1194, "ms-sql-s": 1433,
	"ms-sql-m": 1434, "l2f": 1701, "pptp": 1723, "radius": 1812, "radius-acct": 1813, "mqtt": 1883,
	"ssdp": 1900, "hsrp": 1985, "nfs": 2049,
	"nfsd": 2049, "zookeeper": 2181, "docker": 2375, "docker-s": 2376, "etcd-client": 2379,
	"etcd-server": 2380, "iscsi-target": 3260, "mysql": 3306,
	"ms-wbt-server": 3389, "rdp": 3389, "stun": 3478, "svn": 3690, "ipsec-nat-t": 4500,
	"ipsec-msft": 4500, "vxlan": 4789, "sip": 5060, "sips": 5061,
	"xmpp-client": 5222, "xmpp-server": 5269, "mdns": 5353, "postgresql": 5432, "amqps": 5671,
	"amqp": 5672, "vnc": 5900, "x11": 6000, "geneve": 6081, "redis": 6379,
	"ircd": 6667, "bittorrent": 6881, "http-alt": 8080, "webcache": 8080, "puppet": 8140,
	"https-alt": 8443, "memcached": 11211, "memcache": 11211,
	"mongodb": 27017, "wireguard": 51820,
}
