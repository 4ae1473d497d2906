// Package overlay carries packets between nodes, encrypted, and lets a firewall filter every one of
// them.
//
// A Device is a WireGuard interface: handshakes and sessions come from the wireguard-go library, so
// that any WireGuard can be the other end. The socket, the TUN device, and what seals and opens
// packets between them are our own:
//
//	dev, err := overlay.New(overlay.Config{Name: "weir0", Key: key, Port: 51820, Filter: filter})
//	...
//	err = dev.SetPeer(overlay.Peer{
//		Name: "b", Key: keyOfB, Endpoints: []string{"b.example:51820", "192.0.2.7:51820"},
//		Pods: []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")},
//	})
//
// A KernelDevice is an interface of the kernel's WireGuard with the same peers. What is said below
// about packets and paths is about a Device.
//
// # Packets
//
// The TUN device exchanges GSO packets with virtio headers: the kernel hands over up to 64 KiB of
// one TCP or UDP flow at once, and takes as much. Small packets are read until none is left or a
// batch is full, so that they are sealed and sent together. The end of a GSO packet that would make
// a small one of its own is held back and goes with the next. Packets of peers that were cut from
// one are coalesced again (GRO), TCP segments and UDP datagrams alike. A Filter sees each batch
// before it is sealed (firewall.Out) and after it was opened (firewall.In), in place, without a
// copy; GSO and GRO packets are evaluated as a whole. Authentication, replay and the pod ranges of
// the peer are checked before the Filter sees a packet that came in. What it refuses is dropped and
// counted.
//
// # Paths
//
// A peer may have several endpoints, as addresses or as names. Packets go to the one that the peer
// last sent from, as WireGuard's roaming works. While data is exchanged and the peer has been
// silent for 300 ms, what is sent goes to all endpoints; the same sealed bytes reach the peer at
// most once, because WireGuard drops replays. The peer, ours or any other WireGuard, answers the
// endpoint whose copy came first: a dead path costs less than a second. Handshakes go to one
// endpoint after the other, in steps of 300 ms or less if they are many, until one is answered.
//
// # Sizes
//
// The interface's MTU leaves space for what sealing adds. TCP connections learn it from the MSS
// option, which is lowered on the way through, in both directions, and need no ICMP. The encrypted
// datagrams may be fragmented on the way over IPv4, as those of the kernel's WireGuard may: a
// router that drops what it should have reported slows the tunnel down instead of swallowing all
// large packets. Over IPv6 routers do not fragment: there a path in use is probed (RFC 8899), and
// the MTU lowered to what comes through. That works only if the other end runs this package.
//
// # The socket for wg(8)
//
// With Config.UAPI, wg(8) can show and change the interface.
package overlay
