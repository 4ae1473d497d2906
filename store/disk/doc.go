// Package disk keeps a host's copy of the store on its disk: a snapshot, and a log of later
// changes. A host that starts without a network enforces this copy. See
// docs/design/0008-cluster.md, section 8.
//
// Files of a directory:
//
//	copy         the snapshot; a SHA-256 at the end
//	log          the records since, each with length, number and checksum
//	copy.before  the snapshot before
//	log.before   the records between both
//	texts/       rules by digest
//
// Records are numbered. A snapshot has the number of the last record that it contains, so after a
// crash at any point the files give one consistent state.
package disk
