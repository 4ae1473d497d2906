// Package pod gives a container its network: an interface, addresses, routes, and an entry in the
// fast path. docs/design/0004-containers.md describes the path of a packet.
//
// # What a pod gets
//
// A veth pair, or a netkit. The container's end carries one address of each family, always a host
// address (/32, /128). There is no shared segment, so nothing that a pod does with ARP or neighbour
// discovery reaches another pod. Its default routes point to the gateway, the first address of the
// node's range, through a permanent neighbour entry. The host's end is named weirXXXXXXXX and has
// an alias "weir:KEY", by which a Manager recognises its own interfaces after a crash.
//
// # All or nothing
//
// Attach writes a record before it changes the kernel and completes it afterwards. A failed attach
// is undone in the same order as a Detach, which can be repeated. A process that is killed during
// an attach leaves an incomplete record. At its start the next process removes what exists of that
// pod, and pods whose interfaces are gone after a reboot. Sweep does the same for pods whose
// interface disappears while the Manager runs.
//
// # Concurrency
//
// All methods of Manager may be called concurrently; only the choice of addresses is serialised.
// Calls for one pod wait for each other, until their contexts end.
package pod
