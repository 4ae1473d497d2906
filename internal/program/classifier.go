package program

import "net/netip"

// Dim is a dimension of the classifier.
type Dim uint8

// The dimensions. DimFlags is indexed by the TCP flag byte, or NoFlags for a packet that is not TCP
// (or a later fragment). DimICMP is indexed by type (0..255 for ICMP, 256..511 for ICMPv6, NoICMP
// else), DimProto by protocol + 256 for IPv6, and ports by port number or NoPort. DimHook is
// indexed by direction (0 in, 1 out) + 2 for a later fragment.
const (
	DimSrc Dim = iota
	DimDst
	DimSrcPort
	DimDstPort
	DimProto
	DimFlags
	DimICMP
	DimHook
	NumDims
)

// Indexes for packets that have no value in a dimension.
const (
	NoPort  = 65536
	NoFlags = 256
	NoICMP  = 512
)

// Sizes of the direct-indexed dimensions.
const (
	PortIndexes  = 65536 + 1
	ProtoIndexes = 512
	FlagIndexes  = 256 + 1
	ICMPIndexes  = 512 + 1
	HookIndexes  = 4
)

// Classifier finds candidate rules by bit vectors over equivalence classes (Lakshman and Stiliadis
// 1998, with class ids). Each dimension maps the packet's value to a class, and the class to a
// vector with one bit per slot. The AND of the vectors holds the slots whose baked conditions are
// all true. The lowest set bit at or after pc whose residual Conds are true is the rule to run. A
// rule with no condition in a dimension has its bit in every vector of it.
type Classifier struct {
	Words int // 64-bit words per vector: ceil(len(Rules)/64)
	// whether any rule has a baked condition in the dimension; if not, its only vector is all ones
	Used    [NumDims]bool
	Vectors [NumDims]Vectors // by class id
	Src     Addresses        // address -> class
	Dst     Addresses
	Ports   [2][]uint16 // by port index: class; [0] source, [1] destination; PortIndexes long
	Proto   [ProtoIndexes]uint16
	Flags   [FlagIndexes]uint16
	ICMP    [ICMPIndexes]uint16
	Hook    [HookIndexes]uint16
}

// Addresses maps addresses to classes. V4 holds the runs of IPv4 addresses of one class, in order;
// Directory makes an index of it. V6 holds disjoint or nested prefixes, longest match wins, sorted
// by address then length; Default6 is the class of an address that no prefix covers.
type Addresses struct {
	V4 []AddressClass // the first starts at 0.0.0.0
	// the fewest that say it: a prefix of the same class as the one around it is left out
	V6       []PrefixClass
	Default6 uint32
}

// AddressClass gives the IPv4 addresses from Start up to the next one's their class.
type AddressClass struct{ Start, Class uint32 }

// PrefixClass gives a prefix its class.
type PrefixClass struct {
	Prefix netip.Prefix
	Class  uint32
}
