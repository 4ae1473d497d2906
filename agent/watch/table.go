package watch

import (
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
)

// refusals are the reasons for which a state is not made.
var refusals = [...]firewall.Reason{
	firewall.ReasonLimit, firewall.ReasonStatesFull, firewall.ReasonHalfOpenFull,
	firewall.ReasonHalfOpenSource, firewall.ReasonTracksFull, firewall.ReasonNoKey,
}

// Table returns how full the state table of the kernel's engine is.
func (o *Observer) Table() (api.StateTable, error) {
	s, err := o.config.Engine.Stats()
	if err != nil {
		return api.StateTable{}, err
	}
	// the tunnel's engine has a table of its own
	decisions, err := o.config.Engine.KernelDecisions()
	if err != nil {
		return api.StateTable{}, err
	}
	reasons := firewall.ByReason(decisions)
	t := api.StateTable{
		States: s.States, StatesMax: s.MaxStates,
		Established: max(0, s.States-2*s.Translations.Now-s.HalfOpen), HalfOpen: s.HalfOpen,
		HalfOpenMax: s.MaxHalfOpen,
		PerSource:   s.MaxPerSource, Refused: map[string]uint64{}, Evicted: s.Removed["reclaimed"] +
			s.Removed["source"], SweepLag: clock.Seconds(s.Sweep.Lag),
		EventsLost: s.Lost, RatesFull: s.RatesFull,
		Translations: api.Translations{Now: s.Translations.Now, Max: s.Translations.Max,
			PerPod: s.Translations.MaxPerPod, Made: s.Translations.Made,
			Evicted: s.Translations.Evicted, Refused: reasons[firewall.ReasonNATPorts]},
		Cookies: api.Cookies{On: s.Cookies.On, Impossible: s.Cookies.Impossible,
			Sent: s.Cookies.Sent, Redeemed: s.Cookies.Redeemed, TimesOn: s.Cookies.TimesOn,
			Refused: reasons[firewall.ReasonCookieRefused]},
	}
	for _, r := range refusals {
		if reasons[r] > 0 {
			t.Refused[r.String()] = reasons[r]
		}
	}
	return t, nil
}

// AddStatus fills in the part of the node's status that is about states and refused packets.
func (o *Observer) AddStatus(s *api.Status) (err error) {
	for _, err := range o.config.Engine.States() {
		if err != nil {
			return err
		}
		s.States++
	}
	decisions, err := o.config.Engine.Decisions()
	if err != nil {
		return err
	}
	s.Reasons = map[string]uint64{}
	for reason, packets := range firewall.ByReason(decisions) {
		if packets > 0 && reason != firewall.ReasonRule {
			s.Reasons[reason.String()] = packets
		}
	}
	s.Table, err = o.Table()
	return err
}

// watchCookies writes a line into the log when SYN cookies begin or end.
func (o *Observer) watchCookies(s *kernel.Stats) {
	now := s.Cookies.On
	if was := o.cookies.Swap(now); was == now {
		return
	}
	if now {
		o.config.Log.Warn("SYN cookies are on: half-open states use too much of their pool",
			"half_open",
			s.HalfOpen, "max", s.MaxHalfOpen)
	} else {
		o.config.Log.Info("SYN cookies are off again", "sent", s.Cookies.Sent, "redeemed",
			s.Cookies.Redeemed)
	}
}
