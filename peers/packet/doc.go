// Command packet compares the decoder of package packet with those of tailscale.com/net/packet,
// gopacket (DecodingLayerParser with a sparse container) and gVisor (header accessors with validity
// checks). It runs them in one process and in interleaved rounds, and prints a Markdown table. All
// read the same bytes, which build.Packet made, and each iteration decodes into a new, zeroed
// result, as Tailscale's own benchmark does. The last line is the worst ratio of Tailscale's time
// to ours; see docs/benchmarks.md.
package main
