// Command filter compares the soft engine with Tailscale's filter (tailscale.com v1.102.5,
// wgengine/filter) on the same bytes, in one process and in interleaved rounds, and prints Markdown
// tables. The last line is the worst ratio of the peer's time to ours, each divided by its target.
//
// The packets and the rules are those of the peer's own benchmark, with TCP headers that are whole.
// Both decode inside the measured loop. The peer's filter keeps no TCP state; ours tracks every
// flow of every protocol.
package main
