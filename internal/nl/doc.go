// Package nl is Weir's interface to rtnetlink, and the only package that uses it: links, addresses,
// routes, neighbours, changes of them, and network namespaces. It also configures the kernel's
// WireGuard over generic netlink.
//
// # Why a package of our own
//
// The kernel may report that a dump changed while it was read (NLM_F_DUMP_INTR); the answer is then
// incomplete. A system call may be interrupted (EINTR) before or after the kernel did what was
// asked. The library underneath reports both and continues; callers easily forget to check. Here
// every request is repeated until the answer is complete, and a request that changes something
// counts as done when a repetition finds it done. A test in internal/arch refuses the library
// anywhere else.
//
// # Values
//
// Link, Addr, Route and Neigh are plain values with net/netip addresses. They are snapshots:
// nothing in them follows the kernel.
//
// # Namespaces
//
// A Conn belongs to the namespace it was opened in, whatever thread uses it later, and may be used
// by several goroutines. NS is a handle on a namespace; NS.Do runs a function inside it.
//
// # Watching
//
// Watch reports the current links and addresses and then every change of them. If the kernel
// dropped notifications (ENOBUFS), Watch lists everything again and reports the missed changes as
// ordinary events, so the caller never has to list anything.
package nl
