// Package wire is the protocol between weir-store and its clients: frames over one TLS connection.
// See docs/design/0008-cluster.md, section 7.
//
// A frame is 4 bytes of length, 1 byte of type and a body. A body is a sequence of unsigned varints
// (encoding/binary) and of byte strings with their length before them. The size of everything that
// is read is limited. Bytes that are not exactly a message are refused.
package wire
