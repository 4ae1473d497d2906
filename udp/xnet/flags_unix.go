//go:build unix

package xnet

import "syscall"

// truncatedFlag is what x/net sets in Flags for a datagram that was longer than its buffers.
const truncatedFlag = syscall.MSG_TRUNC
