package main

import "time"

// scenario is one attack, or one load, with what legitimate users do meanwhile.
type scenario struct {
	name   string
	rates  []int // packets a second of the attack
	attack func(*testbed, []*keptConn) generator
	// an attack of real connections, in place of packets
	connect  func(w *testbed, rate int, until time.Time) (int, error)
	work     []work
	brief    bool // fills no table: a third of the time
	adopted  bool // the connections that stay are open before the firewall is
	settings string
	rules    string
}

var everything = []work{tcpIn, tcpOut, udpIn, udpOut, published, pubDNS, masqTCP, masqDNS}

// floods are the attacks that fill tables.
var floods = []scenario{
	{name: "UDP that is answered, spoofed sources", rates: []int{20000, 100000},
		attack: udpTo(answerPort, spoofed), work: everything},
	{name: "UDP without an answer, spoofed sources", rates: []int{20000, 100000},
		attack: udpTo(silentPort, spoofed), work: everything},
	{name: "SYN, spoofed sources", rates: []int{20000, 100000}, attack: synTo(echoPort, spoofed),
		work: everything},
	{name: "SYN to a published port, spoofed sources", rates: []int{20000, 100000},
		attack: synTo(publishedPort, spoofed), work: everything},
	{name: "SCTP INIT, spoofed sources", rates: []int{20000, 100000}, attack: sctpInit,
		work: everything},
	{name: "UDP from the host's own address", rates: []int{20000, 100000},
		attack: udpTo(answerPort, only(hostAddr)), work: everything},
	{name: "UDP from the address of a user", rates: []int{20000, 100000},
		attack: udpTo(silentPort, only(userAddr)), work: everything},
	{name: "SYN from the address of a user", rates: []int{20000, 100000},
		attack: synTo(echoPort, only(userAddr)), work: everything},
	{name: "three real addresses open connections and fall silent", rates: []int{2000},
		connect: fallSilent, work: everything},
	{name: "ICMP errors of every kind", rates: []int{20000, 100000}, attack: icmpErrors,
		work: everything},
}

// blinds are guesses at connections that are open.
var blinds = []scenario{
	{name: "blind segments, all connections", rates: []int{20000, 100000}, attack: blind,
		work: everything, brief: true},
	{name: "blind segments, adopted connections", rates: []int{20000, 100000}, attack: blind,
		work: []work{tcpIn, tcpOut, udpIn, udpOut}, adopted: true, brief: true},
}

// loads are legitimate, and much.
var loads = []load{
	{name: "DNS from one pod to one resolver", work: masqDNS, rate: 3000, back: udpBack},
	{name: "DNS to a published port", work: pubDNS, rate: 3000, back: udpBack},
	{name: "short TCP connections out of a pod to one port", work: masqTCP, rate: 4000,
		back: tcpBack},
	{name: "short TCP connections to a published port", work: published, rate: 4000, back: tcpBack},
}
