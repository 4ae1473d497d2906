package firewall

import "strconv"

var kindNames = [...]string{EventStart: "start", EventEnd: "end", EventDrop: "drop",
	EventLog: "log", EventRefuse: "refuse"}

// String returns the word of filters, JSON and metrics.
func (k EventKind) String() string { return nameIn(kindNames[:], "kind-", int(k)) }

var directionNames = [...]string{In: "in", Out: "out"}

// String returns the word of rules.
func (d Direction) String() string { return nameIn(directionNames[:], "direction-", int(d)) }

var answerNames = [...]string{AnswerNone: "none", AnswerReset: "reset", AnswerUnreach: "unreach",
	AnswerUnreach6: "unreach6", AnswerCookie: "cookie"}

// String returns the word that rules use for the answer, or a description of it.
func (a Answer) String() string { return nameIn(answerNames[:], "answer-", int(a)) }

// nameIn returns a name, or a number behind a prefix if there is none.
func nameIn(names []string, prefix string, i int) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return prefix + strconv.Itoa(i)
}
