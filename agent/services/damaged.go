package services

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/atomicfile"
)

// unusableLocked says why nothing can be changed.
func (s *Manager) unusableLocked() error {
	if s.closed {
		return errClosed
	}
	return s.broken
}

// startLocked returns the record that a service is added to. In place of a damaged one it has the
// addresses that are named there. What is in force stays until the service is added.
func (s *Manager) startLocked() (record, error) {
	err := s.unusableLocked()
	if s.closed || !isDamaged(err) {
		return s.record, err
	}
	if _, ok := s.config.Pods(); !ok {
		return record{}, errLater
	}
	return record{Held: s.salvaged}, nil
}

// setAsideLocked gives a damaged record another name, too, before it is replaced.
func (s *Manager) setAsideLocked() error {
	if s.broken == nil {
		return nil
	}
	aside, err := atomicfile.LinkAside(s.config.File, "damaged")
	if errors.Is(err, fs.ErrNotExist) { // someone removed it
		return nil
	}
	if err != nil {
		return fmt.Errorf("set the damaged record of services aside: %w", err)
	}
	s.config.Problems.Put(problem.Problem{About: "the record of services", File: aside,
		Problem: api.Problem{What: "the record of services was damaged and set aside as " + aside,
			Advice: "weir service list shows the services; add those that are missing: weir " +
				"service add; then remove the file"}})
	return nil
}
