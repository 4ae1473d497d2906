// Package disk keeps a host's copy of the store on its disk: a snapshot, and a log of what changed
// since. A host that starts without a network enforces what it finds there.
// docs/design/0008-cluster.md, section 8, is the page to it.
//
// Files of a directory:
//
//	copy         the snapshot; a SHA-256 at the end
//	log          the records since, each with length, number and checksum
//	copy.before  the snapshot before
//	log.before   the records between both
//	texts/       rules by digest
//
// Records are numbered. A snapshot has the number of the last record in it, so that a crash at any
// point of a change leaves files that lead to one state.
package disk
