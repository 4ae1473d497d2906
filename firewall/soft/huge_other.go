//go:build !linux

package soft

// huge does nothing: only Linux has to be asked for huge pages.
func huge([]byte) {}
