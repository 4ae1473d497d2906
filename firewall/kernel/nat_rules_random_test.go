package kernel

import (
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// natTestRules translate for a server behind the host. They refuse some packets as they are on the
// wire, and some where they leave. They let some pass in front of the rule with nat.
const natTestRules = "nat 1 config ip 192.0.2.1 redirect_port tcp 10.0.5.9:80 8088 redirect_port " +
	"udp 10.0.5.9:80 8088 redirect_port udp 10.0.5.9:53 5454 redirect_port udp 10.0.5.9:666 6667\n" +
	"add 2 deny ip from any to any 666\nadd 3 deny ip from any to 10.0.5.0/24 in via eth0\n" +
	"add 4 deny udp from 192.0.2.2 4001 to 192.0.2.1 in\n" +
	"add 5 deny udp from 192.0.2.2 4000 to 10.0.5.9 53 out\n" +
	"add 6 allow tcp from 192.0.2.2 4001 to any in via eth0\n" +
	"add 7 nat 1 ip from any to any via eth0\nadd 8 allow ip from any to any\n"

// TestNATRuleTranslationsAgainstTheModel is TestRoutedTranslationsAgainstTheModel with a rule that
// translates in place of settings, beside published ports and pods that hide.
func TestNATRuleTranslationsAgainstTheModel(t *testing.T) {
	t.Parallel()
	packets := 1500
	if n, err := strconv.Atoi(os.Getenv("WEIR_DECISIONS")); err == nil {
		packets = n
	}
	g := newGateway(t, openRules)
	f := g.frames()
	f.publish(8080, 80)
	g.must(g.engine.SetMasquerade(forward.Masquerade{Sources: podRanges, Except: podRanges,
		Ports: []forward.PortRange{{First: 2000, Last: 2999}}}))
	g.load(natTestRules)
	f.compare(t, packets, 0, natTestRules, func() *enginetest.Translator {
		return &enginetest.Translator{Hides: true, NAT: 7,
			Behind: map[netip.Addr]uint32{serverFour: g.inside},
			Published: map[enginetest.Port]netip.AddrPort{
				{Proto: packet.ProtoTCP, To: end(hostAddr, 8080)}: end(podA, 80),
				{Proto: packet.ProtoUDP, To: end(hostAddr, 8080)}: end(podA, 80),
				{Proto: packet.ProtoTCP, To: end(hostAddr, 8088)}: end(serverFour, 80),
				{Proto: packet.ProtoUDP, To: end(hostAddr, 8088)}: end(serverFour, 80),
				{Proto: packet.ProtoUDP, To: end(hostAddr, 5454)}: end(serverFour, 53),
				{Proto: packet.ProtoUDP, To: end(hostAddr, 6667)}: end(serverFour, 666),
			}}
	})
}
