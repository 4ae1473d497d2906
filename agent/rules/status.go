package rules

import (
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/internal/program"
)

// AddStatus fills in the part of the node's status that is about the rules.
func (m *Manager) AddStatus(s *api.Status) {
	s.Default = "allow"
	m.View(func(r Version, _ *program.Program) {
		s.Rules, s.Source = len(r.Set.Rules), r.Source
		if r.Strict {
			s.Default = "deny"
		}
	})
	if name, left, on := m.TrialLeft(); on {
		s.Trial = &api.Trial{Name: name, LeftSeconds: clock.Seconds(left)}
	}
	if at, session, on := m.InPanic(); on {
		s.Panic = &api.PanicState{Since: at, Session: session}
	}
}
