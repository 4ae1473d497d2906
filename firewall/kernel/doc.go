// Package kernel is the engine that evaluates packets inside the kernel: eBPF programs at the tcx
// hooks (clsact where the kernel has no tcx) of the host's interfaces.
//
//	e, err := kernel.Open(kernel.Config{
//		Options: firewall.DefaultOptions(), Dir: "/sys/fs/bpf/weir",
//	})
//	...
//	err = e.Load(program)
//	hook, err := e.Attach(2)
//
// # What lives where
//
// Programs, maps and links are pinned below Config.Dir. Packets continue to be evaluated when the
// process ends, whether by Close or by a kill; the next Open takes everything over: states and
// counters continue. Remove takes it all away. With Dir empty nothing is pinned, and everything
// ends with Close.
//
// A Program is written into a map of its own, its image, which is never changed afterwards; a
// single word says which image is in force. A packet reads that word once, so it is evaluated by
// one Program, wholly.
//
// Rules have lasting ids, by their Rule.Key: counters and states are kept by id, so a rule that is
// still there after a Load keeps both. The states of rules that are gone are gone with the same
// word.
//
// States lie in a set-associative table of our own; bpf/lib/table.h describes it. This package
// reads it through shared memory, and asks the kernel to change it: user space never writes where
// packets are counted.
//
// An engine of another layout, or with tables of other sizes, is replaced at the first Attach, at
// all its interfaces; without tcx interface by interface.
// Its states and counters are migrated under traffic (migrate.go), if its layout is one that we
// know; pins of any other are never read.
//
// # C
//
// The programs are in bpf/, Dual BSD/GPL. `make gen` compiles them with clang 14; what it makes is
// committed.
package kernel
