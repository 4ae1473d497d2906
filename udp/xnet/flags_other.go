//go:build !unix

package xnet

const truncatedFlag = 0 // Windows fails the read instead
