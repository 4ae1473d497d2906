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
// # What outlives the process
//
// Programs, maps and links are pinned below Config.Dir. Packets continue to be evaluated when the
// process ends, whether by Close or by a kill; the next Open takes over programs, maps and links;
// states and counters continue. Remove removes them all. If Dir is empty, nothing is pinned, and
// everything ends with Close.
//
// Each Program is written into its own map, its image, which is never changed afterwards. One word
// selects the image in force. A packet reads that word once, so it is evaluated entirely by one
// Program.
//
// Rules have persistent ids, by their Rule.Key. Counters and states are kept by id, so a rule that
// is also in the next Program keeps both. The states of removed rules end when the word changes.
//
// States are in a set-associative table, which bpf/lib/table.h describes. This package reads it
// through shared memory, and asks the kernel to change it: user space never writes where packets
// are counted.
//
// An engine of another layout, or with tables of other sizes, is replaced at the first Attach, at
// all its interfaces at once; without tcx, one interface after the other. Its states and counters
// are migrated under traffic (migrate.go) if its layout is known; pins of unknown layouts are never
// read.
//
// # C
//
// The programs are in bpf/, Dual BSD/GPL. `make gen` compiles them with clang 14; the output is
// committed.
package kernel
