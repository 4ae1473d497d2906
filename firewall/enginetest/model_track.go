package enginetest

// trackOf names the track that counts a state.
func trackOf(s *modelState) Track {
	m := masked(s)
	t := Track{Rule: s.rule, Proto: s.Proto, Ports: uint32(m.from.Port())<<16 | uint32(m.to.Port())}
	if a := m.from.Addr(); a.IsValid() {
		t.Src = a.As16()
		if a.Zone() != "" {
			t.Link = s.key.Link()
		}
	}
	if m.to.Addr().IsValid() {
		t.Dst = m.to.Addr().As16()
	}
	return t
}

// trackSpace reports whether there is space for one more track. If all are in use, one that counts
// half-open states only is given away, which one is the engine's choice.
func (j *job) trackSpace() bool {
	if j.reassignedTrack == nil { // any number
		return true
	}
	all := map[Track][]*modelState{}
	for _, s := range j.states {
		if s.tracked {
			all[trackOf(s)] = append(all[trackOf(s)], s)
		}
	}
	if len(all) < j.Options.MaxTracks {
		return true
	}
	space := false
	var choice []*modelState
	for t, counted := range all {
		if provedAny(counted) {
			continue
		}
		space = true
		reassignedTrack, again := j.reassignedTrack(t)
		if again || reassignedTrack && choice == nil {
			choice = counted
		}
		if again { // it was given away before any other of the same packet
			break
		}
	}
	for _, s := range choice {
		j.seen.note(ofTrack, 0, "given away")
		s.tracked, s.reassigned = false, true
	}
	if !space {
		j.seen.note(ofTrack, 0, "no space for one")
	}
	return space
}

func provedAny(all []*modelState) bool {
	for _, s := range all {
		if !s.HalfOpen() {
			return true
		}
	}
	return false
}

// countAgain counts a state that has proved itself after its track was given away. It reports false
// if the limit is reached or there is no space for a track.
func (j *job) countAgain(s *modelState, slot int) bool {
	n := uint32(0)
	for _, other := range j.states {
		if other.tracked && trackOf(other) == trackOf(s) {
			n++
		}
	}
	if n >= j.rules[slot].State.Limit || n == 0 && !j.trackSpace() {
		return false
	}
	s.tracked, s.reassigned = true, false
	return true
}
