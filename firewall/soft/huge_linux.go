package soft

import "syscall"

// huge asks for huge pages under memory that has not been touched yet. A table is read at random:
// with small pages nearly every lookup in a large one would miss the TLB. It is a wish; without it
// everything works as well, only slower.
func huge(b []byte) {
	const page = 2 << 20
	if len(b) >= 2*page {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}
