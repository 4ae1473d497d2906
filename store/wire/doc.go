// Package wire is what weir-store and its clients send each other: frames over one TLS connection.
// docs/design/0008-cluster.md, section 7, is the page to it.
//
// A frame is 4 bytes of length, 1 byte of type and a body. A body is a sequence of unsigned varints
// (encoding/binary) and of byte strings with their length before them. Everything that is read is
// bounded, and what is not exactly a message is refused.
package wire
