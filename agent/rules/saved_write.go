package rules

import "github.com/weirnet/weir/internal/atomicfile"

// written is the rules beside the file, or the error that has prevented it. prepare or discard ends
// it.
type written struct {
	savedWhole
	err error
}

// write writes the rules beside the file, without any other effect.
func (s *savedRules) write(r Version) *written {
	text, tail := s.whole(r)
	p, err := atomicfile.Prepare(s.path, text)
	return &written{savedWhole{p, s, tail}, err}
}

// prepare makes ready what is needed before the file can be replaced.
func (w *written) prepare() (pending, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.saved.mu.Lock()
	defer w.saved.mu.Unlock()
	if err := w.saved.retireLocked(); err != nil {
		w.Discard()
		return nil, err
	}
	return &w.savedWhole, nil
}

func (w *written) discard() {
	if w.err == nil {
		w.Discard()
	}
}
