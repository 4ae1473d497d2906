//go:build unix

package xnet

import "syscall"

// truncatedFlag is what x/net has in Flags of a datagram that was longer than its buffers.
const truncatedFlag = syscall.MSG_TRUNC
