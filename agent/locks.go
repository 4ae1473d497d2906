package agent

// Lock takes the lock of the peers, for the watchdog.
func (p *peers) Lock() {
	p.mu.Lock()
	p.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
}

// lockPods takes the locks of the pods, if there are any, for the watchdog.
func (n *Node) lockPods() {
	if p := n.pods.Load(); p != nil {
		p.manager.List()
		p.labels.all()
	}
}
