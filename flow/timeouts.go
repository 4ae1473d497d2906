package flow

import "time"

// Timeouts are the lifetimes of idle flows, docs/design/0003-evaluation.md section 9.
type Timeouts struct {
	Syn         time.Duration // TCP opening and closing, SCTP one side seen
	Established time.Duration
	Fin         time.Duration // TCP closed by two acknowledged FINs
	Rst         time.Duration // TCP closed by RST
	UDP         time.Duration // one side seen
	UDPReply    time.Duration // both sides seen
	Short       time.Duration // ICMP and everything else
}

// DefaultTimeouts returns ipfw's lifetimes (ipfw has no UDPReply).
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Syn: 20 * time.Second, Established: 300 * time.Second, Fin: time.Second, Rst: time.Second,
		UDP: 10 * time.Second, UDPReply: 30 * time.Second, Short: 5 * time.Second,
	}
}
