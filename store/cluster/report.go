package cluster

import "errors"

// Report is the document below ReportTree: which version a host enforces.
type Report struct {
	Versioned
	Enforced Number `json:"enforced"` // the head in force; zero: none yet
	// Refused is a newer head that is not in force, and Why the reason, for people.
	Refused *Number `json:"refused,omitempty"`
	Why     string  `json:"why,omitempty"`
	// Connected says of a version on trial that the host was connected when half of the trial was
	// over.
	Connected bool   `json:"connected,omitempty"`
	Held      int    `json:"held,omitempty"`   // removals that are held back
	Claims    uint64 `json:"claims,omitempty"` // claims that were refused so far
	Weir      string `json:"weir,omitempty"`   // the version of the program
}

// Check implements Document.
func (r *Report) Check() error {
	if len(r.Why) > 1024 || !printable(r.Weir) || r.Held < 0 {
		return errors.New("a part of the report is too long or not valid")
	}
	if (r.Refused == nil) != (r.Why == "") {
		return errors.New("a version that is refused needs a reason, and only that")
	}
	return nil
}
