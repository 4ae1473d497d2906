// Command udp compares package udp with the batch calls of golang.org/x/net over loopback, in one
// process and in interleaved rounds, and prints Markdown tables. The last line is the worst ratio
// of all rows that have a target, divided by that target; see docs/benchmarks.md.
package main
