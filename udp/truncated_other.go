//go:build !unix

package udp

const truncatedFlag = 0 // Windows fails the read instead
