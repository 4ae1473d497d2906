package api

import "time"

// RuleChange is a change of the rules in force that is looked at and not made (POST /v1/preview
// -> Preview).
type RuleChange struct {
	Text string `json:"text"` // commands, one a line, as in a rule file
	// a duration: decide the flows of so long again; "" does not
	Replay string `json:"replay,omitempty"`
}

// Preview is the effect of a change.
type Preview struct {
	Version int  `json:"version"`
	Fine    bool `json:"fine"` // it can be made
	// in the text, each at its place; Message: why else it cannot be made
	Mistakes []Mistake `json:"mistakes,omitempty"`
	Message  string    `json:"message,omitempty"`
	Command  string    `json:"command,omitempty"` // of a shell, that makes it
	Added    []Rule    `json:"added"`             // without counters
	Removed  []Rule    `json:"removed"`
	Warnings []string  `json:"doubts"` // which the rules in force do not raise
	Replay   *Replay   `json:"replay,omitempty"`
}

// Mistake is one in rule text.
type Mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Text    string `json:"text"`
}

// Replay has the verdicts of the changed rules for the flows of the journal.
type Replay struct {
	From    time.Time `json:"from"`  // of the first event
	Flows   int       `json:"flows"` // that were decided again; each by its first packet
	Same    int       `json:"same"`
	Refused int       `json:"refused"` // pass now, and would not
	Passed  int       `json:"passed"`  // are refused now, and would pass
	Other   int       `json:"other"`   // the same by another rule
	// events that rules did not decide, or about interfaces that are gone
	Skipped int `json:"skipped"`
	// flows for which there was no time or no space
	LeftOut int           `json:"left_out"`
	Changes []ChangedFlow `json:"changes"` // those of Refused, Passed and Other that are most
}

// ChangedFlow are flows from one end to a port of another about which the changed rules decide in
// another way.
type ChangedFlow struct {
	Proto   string  `json:"proto"`
	Src     string  `json:"src"`
	SrcName string  `json:"src_name,omitempty"`
	Dst     string  `json:"dst"`
	DstName string  `json:"dst_name,omitempty"`
	Port    uint16  `json:"port,omitempty"`
	Flows   int     `json:"flows"`
	Now     Verdict `json:"now"`
	Then    Verdict `json:"then"`
}

// Verdict is a verdict and the rule that it comes from.
type Verdict struct {
	Passed bool   `json:"passed"`
	Rule   uint16 `json:"rule,omitempty"`
	Text   string `json:"text,omitempty"`
	Reason string `json:"reason"`
}
