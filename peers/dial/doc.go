// Command dial compares package eyeballs with net.Dialer and with curl, and measures package proxy,
// in new network namespaces. It prints Markdown tables. The last line is the worst ratio of all
// rows, each divided by its target. It needs root, /dev/net/tun and curl.
package main
