package flow

// Side is what one end of a conversation has shown so far. Packets from one end write only their own Side, so that two CPUs that
// carry the two directions share no cache line.
type Side struct {
	Last    int64 // time of the last packet that counted, ns
	Packets uint64
	Bytes   uint64 // IP lengths
	Start   uint32 // TCP: initial sequence number; SCTP: verification tag used by this side
	End     uint32 // TCP: highest SEQ+LEN sent
	Ack     uint32 // TCP: highest acknowledgement sent
	Edge    uint32 // TCP: highest ACK + scaled window sent
	Win     uint32 // TCP: largest scaled window sent
	FinEnd  uint32 // TCP: SEQ+LEN of the FIN
	Flags   SideFlags
	Scale   uint8 // TCP: window scale, 0..14
}

// SideFlags are facts about one end.
type SideFlags uint8

// The facts.
const (
	Seen   SideFlags = 1 << iota // a packet of this side counted
	Syn                          // Start is valid
	Acked                        // Ack and Edge are valid
	Fin                          // FinEnd is valid
	Rst                          // sent a valid RST (SCTP: ABORT or SHUTDOWN COMPLETE)
	Scaled                       // its SYN carried the window scale option
)

// State is a live conversation as the state machine sees it. Side 0 is the one that made the state.
type State struct {
	Proto uint8
	Loose bool // made in mid-stream: no window checks
	Sides [2]Side
}

// Result says what the state machine makes of a packet that found a state.
type Result uint8

// The results.
const (
	Hit       Result = iota // the packet counted: sides were updated
	Untouched               // passes as the rule says, the state is as before
	Recycle                 // the packet begins a new conversation on the same ports: remove the state, treat as not found
	BadFlags                // drop: reason tcp-flags
	BadRst                  // drop: reason tcp-rst
	BadAck                  // drop: reason tcp-ack
	BadWindow               // drop: reason tcp-window
	BadTag                  // drop: reason sctp-vtag
	BadICMP                 // drop: reason icmp-seq
)

// Phase is the stage of a conversation's life, computed from its two sides.
type Phase uint8

// The phases. For protocols other than TCP a conversation is Opening until both sides were seen.
const (
	Opening Phase = iota
	Established
	Closing // TCP: both FINs sent, not both acknowledged
	Closed  // TCP: both FINs acknowledged; SCTP: shut down
	Reset   // TCP: a valid RST; SCTP: ABORT
)
