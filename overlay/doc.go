// Package overlay sends encrypted packets between nodes. A firewall filters every packet.
//
// A Device is a WireGuard interface: handshakes and sessions come from the wireguard-go library, so
// the other end can be any WireGuard implementation. The socket, the TUN device, and the encryption
// and decryption of packets are our own:
//
//	dev, err := overlay.New(overlay.Config{Name: "weir0", Key: key, Port: 51820, Filter: filter})
//	...
//	err = dev.SetPeer(overlay.Peer{
//		Name: "b", Key: keyOfB, Endpoints: []string{"b.example:51820", "192.0.2.7:51820"},
//		Pods: []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")},
//	})
//
// A KernelDevice is an interface of the kernel's WireGuard with the same peers. The sections on
// packets and paths below are about a Device.
//
// # Packets
//
// The TUN device exchanges GSO packets with virtio headers: up to 64 KiB of one TCP or UDP flow
// pass at once, in both directions. Small packets are read until none is left or a batch is full,
// so that they are encrypted and sent together. A short tail of a GSO packet is held back and sent
// with the next packet. TCP segments and UDP datagrams from peers are coalesced again (GRO). A
// Filter sees each batch before encryption (firewall.Out) and after decryption (firewall.In), in
// place, without a copy; GSO and GRO packets are evaluated as a whole. Authentication, replay and
// the pod ranges of the peer are checked before the Filter sees a received packet. Packets that the
// Filter refuses are dropped and counted.
//
// # Paths
//
// A peer may have several endpoints, as addresses or as names. Packets go to the one that the peer
// last sent from, like WireGuard's roaming. If data is exchanged and the peer has been silent for
// 300 ms, packets go to all endpoints. WireGuard drops replays, so the peer accepts each encrypted
// packet only once. The peer, Weir or any other WireGuard, answers the endpoint whose copy arrived
// first: failover from a dead path takes less than a second. Handshakes go to one endpoint after
// the other, every 300 ms, or faster if there are many, until one is answered.
//
// # Sizes
//
// The interface's MTU leaves space for the encryption overhead. The MSS option of TCP connections
// is lowered in both directions, so they need no ICMP. Over IPv4 the encrypted datagrams may be
// fragmented, like those of the kernel's WireGuard, so a router that silently drops large packets
// does not block the tunnel. Over IPv6 routers do not fragment: there a path in use is probed (RFC
// 8899), and the MTU is lowered to the size that arrives. That works only if the other end runs
// this package.
//
// # The socket for wg(8)
//
// With Config.UAPI, wg(8) can show and change the interface.
package overlay
