// Command firewall measures Weir's kernel engine beside no firewall and nftables, in network
// namespaces of its own.
//
// Every row toggles its contenders in random order under one continuous load: a cycle gives each of
// them one short segment, and the ratio is taken within the cycle. What is shown are medians of the
// cycles' ratios with quartiles, since the machine's speed changes from minute to minute while its
// ratios stay.
//
// UDP rows send frames of 60 bytes from a packet socket; the sender's CPU time holds the whole way
// to the receiver's socket. The share is the cost of Weir over no firewall divided by nft's over no
// firewall.
package main
