package main

import (
	"fmt"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
)

// weirRules mean the same as benchRules and the code of the peer: everything may go out, replies
// may come in, and these may begin.
const weirRules = `
add 1 check-state
add 2 allow ip from any to any out keep-state
add 3 allow icmp from any to any in icmptypes 0,3,11,12
add 4 allow ipv6-icmp from any to any in icmp6types 1,2,3,4,129
add 10 allow tcp from 8.1.1.1,8.2.2.2 to 1.2.3.4 22 in setup keep-state
add 10 allow tcp from 8.1.1.1,8.2.2.2 to 5.6.7.8 23-24 in setup keep-state
add 10 allow udp from 8.1.1.1,8.2.2.2 to 1.2.3.4 22 in keep-state
add 10 allow udp from 8.1.1.1,8.2.2.2 to 5.6.7.8 23-24 in keep-state
add 10 allow icmp from 8.1.1.1,8.2.2.2 to 1.2.3.4,5.6.7.8 in
add 20 allow sctp from 9.1.1.1,9.2.2.2 to 1.2.3.4 22 in keep-state
add 20 allow sctp from 9.1.1.1,9.2.2.2 to 5.6.7.8 23-24 in keep-state
add 30 allow tcp from 8.1.1.1,8.2.2.2 to 5.6.7.8 27-28 in setup keep-state
add 30 allow udp from 8.1.1.1,8.2.2.2 to 5.6.7.8 27-28 in keep-state
add 40 allow tcp from 2.2.2.2 to 8.1.1.1 22 in setup keep-state
add 40 allow udp from 2.2.2.2 to 8.1.1.1 22 in keep-state
add 40 allow icmp from 2.2.2.2 to 8.1.1.1 in
add 50 allow tcp from 0.0.0.0/0 to 100.122.98.50 in setup keep-state
add 50 allow { udp or icmp } from 0.0.0.0/0 to 100.122.98.50 in keep-state
add 60 allow tcp from 0.0.0.0/0 to 0.0.0.0/0 443 in setup keep-state
add 60 allow udp from 0.0.0.0/0 to 0.0.0.0/0 443 in keep-state
add 70 allow tcp from 153.1.1.1,153.1.1.2,153.3.3.3 to 1.2.3.4 999 in setup keep-state
add 70 allow udp from 153.1.1.1,153.1.1.2,153.3.3.3 to 1.2.3.4 999 in keep-state
add 80 allow tcp from ::1,::2 to 2001::1,2001::2 22 in setup keep-state
add 80 allow udp from ::1,::2 to 2001::1,2001::2 22 in keep-state
add 80 allow ipv6-icmp from ::1,::2 to 2001::1,2001::2 in
add 90 allow tcp from ::/0 to ::/0 443 in setup keep-state
add 90 allow udp from ::/0 to ::/0 443 in keep-state
add 100 allow 116 from any to any in keep-state
`

// engine returns an engine with rules.
func engine(rules string, states, workers int) (*soft.Engine, error) {
	o := firewall.DefaultOptions()
	o.MaxStates = states
	o.MaxHalfOpen = max(1<<10, states/16)
	o.MaxPerSource = 2 * o.MaxHalfOpen // all that a benchmark begins comes from one source
	e, err := soft.New(soft.Options{Options: o, Workers: workers})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return e, loadRules(e, rules)
}

// batch is how many packets a worker gets at once: as many as wireguard-go reads from a TUN device
// with offloads.
const batch = 64
