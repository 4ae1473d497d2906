package agent

// Lock takes the lock of the peers, for the watchdog.
func (p *peers) Lock() {
	p.mu.Lock()
	p.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
}
