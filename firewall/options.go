package firewall

import "github.com/weirnet/weir/flow"

// Options are the settings of an engine, fixed for its life. Begin with DefaultOptions. soft.New
// uses its limits and timeouts for those that are not set.
type Options struct {
	Timeouts     flow.Timeouts
	MaxStates    int // states in all, kept loosely: at most 5 % over
	MaxHalfOpen  int // half-open states
	MaxPerSource int // of these, of one source (an IPv4 address, an IPv6 /64); 0 for any number
	MaxTracks    int // distinct (rule, masked tuple) of limit rules
	// MaxTranslations is how many flows may be translated at once; 0 means a quarter of MaxStates.
	// A translated flow takes three entries of the table: its state, and one for each of its two
	// tuples. MaxPodTranslations is how many of them one pod may have; 0 means half.
	MaxTranslations, MaxPodTranslations int
	// TCP packets outside the window pass (without touching the state)
	Liberal bool
	// The following switches are off in the zero value, which is the safe one: it answers floods
	// with SYN cookies, and IPv6 works on the link whatever the rules say.
	NoCookies   bool // the kernel engine never answers with SYN cookies
	NoEssential bool // neighbour discovery and MLD are evaluated by the rules
	NoDHCP      bool // what the host's DHCP client sends and receives, too
}

// Translations returns MaxTranslations and MaxPodTranslations with 0 replaced by its meaning.
func (o *Options) Translations() (all, pod int) {
	all, pod = o.MaxTranslations, o.MaxPodTranslations
	if all == 0 {
		all = max(1, o.MaxStates/4)
	}
	if pod == 0 {
		pod = max(1, all/2)
	}
	return all, min(pod, all)
}

// DefaultOptions returns the sizes of a small server: 256k states, 64k of them half-open, of which
// one source may have a quarter.
func DefaultOptions() Options {
	return Options{Timeouts: flow.DefaultTimeouts(), MaxStates: 1 << 18, MaxHalfOpen: 1 << 16,
		MaxPerSource: 1 << 14, MaxTracks: 1 << 14}
}
