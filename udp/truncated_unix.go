//go:build unix

package udp

import "syscall"

const truncatedFlag = syscall.MSG_TRUNC
