package eyeballs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
)

// Stage is how far an attempt got.
type Stage uint8

// The stages of an attempt.
const (
	StageConnect   Stage = iota // waiting for the transport connection
	StageHandshake              // connected, waiting for TLS
)

// String names the stage.
func (s Stage) String() string {
	return [...]string{"connect", "handshake"}[s]
}

// Error lists everything that a failed dial tried.
type Error struct {
	// Network and Address are the arguments of the dial.
	Network, Address string
	// Elapsed is how long the dial took.
	Elapsed time.Duration
	// Cause is the error of the context that ended the dial. It is nil if every attempt failed.
	Cause error
	// Lookups are the questions without a useful answer.
	Lookups []Lookup
	// Attempts are in the order in which they began.
	Attempts []Attempt
}

// Lookup is a question that had no useful answer.
type Lookup struct {
	// Name and Type are the question.
	Name string
	Type dns.Type
	// At is when the answer came, counted from the beginning of the dial.
	At  time.Duration
	Err error
}

// Attempt is a failed attempt to connect.
type Attempt struct {
	Addr netip.AddrPort
	// Stage is how far it got.
	Stage Stage
	// Start is counted from the beginning of the dial.
	Start, Duration time.Duration
	Err             error
}

// errNoAnswer is the error of attempts and questions that were still waiting at the end.
var errNoAnswer = errors.New("no answer")

// Error lists the attempts in the order in which they began, then those questions without an answer
// that explain why there was nothing more to try.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Address)
	b.WriteString(": ")
	switch {
	case errors.Is(e.Cause, context.DeadlineExceeded):
		fmt.Fprintf(&b, "i/o timeout after %v", round(e.Elapsed))
	case e.Cause != nil:
		fmt.Fprintf(&b, "%v after %v", e.Cause, round(e.Elapsed))
	case len(e.Attempts) == 0 && len(e.Lookups) == 0:
		b.WriteString("no address to try")
	case len(e.Attempts) == 0:
		b.WriteString("no address")
	default:
		fmt.Fprintf(&b, "all %d attempts failed", len(e.Attempts))
		if len(e.Attempts) == 1 {
			return e.Address + ": " + e.attempt(0)
		}
	}
	sep := ": "
	for i := range e.Attempts {
		b.WriteString(sep)
		b.WriteString(e.attempt(i))
		sep = "; "
	}
	for _, l := range e.Lookups {
		if len(e.Attempts) > 0 && isNotFound(l.Err) {
			continue // a name without addresses of one family is not a failure
		}
		fmt.Fprintf(&b, "%s%s: %v", sep, l.Type, l.Err)
		sep = "; "
	}
	return b.String()
}

// attempt describes an attempt, to follow the address of the dial. It leaves out the attempt's
// address if that is the same.
func (e *Error) attempt(i int) string {
	a := &e.Attempts[i]
	if a.Addr.String() == e.Address {
		return a.course()
	}
	return a.String()
}

// String describes the attempt in a phrase.
func (a *Attempt) String() string { return a.Addr.String() + ": " + a.course() }

// course says how far the attempt got, when, and why it failed.
func (a *Attempt) course() string {
	return fmt.Sprintf("%s at %v after %v: %v", a.Stage, round(a.Start), round(a.Duration),
		cause(a.Err))
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// cause strips net.OpError, which would repeat the address.
func cause(err error) error {
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		return sys
	}
	return err
}

// Unwrap returns the causes: the context's, then those of the attempts, then those of the lookups
// that Error names.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Cause != nil {
		all = append(all, e.Cause)
	}
	for i := range e.Attempts {
		if err := e.Attempts[i].Err; err != nil {
			all = append(all, err)
		}
	}
	for i := range e.Lookups {
		if err := e.Lookups[i].Err; err != nil && !(len(e.Attempts) > 0 && isNotFound(err)) {
			all = append(all, err)
		}
	}
	return all
}

// Timeout reports whether the dial ended because its time was up, or because every attempt timed
// out. It makes the error a net.Error inside net.OpError.
func (e *Error) Timeout() bool {
	if e.Cause != nil {
		return errors.Is(e.Cause, context.DeadlineExceeded)
	}
	for i := range e.Attempts {
		if t, ok := e.Attempts[i].Err.(interface{ Timeout() bool }); !ok || !t.Timeout() {
			return false
		}
	}
	return len(e.Attempts) > 0
}

// Temporary reports whether a later dial may succeed. It is false if the name does not exist.
func (e *Error) Temporary() bool {
	if len(e.Attempts) > 0 || e.Cause != nil {
		return true
	}
	for i := range e.Lookups {
		if !isNotFound(e.Lookups[i].Err) {
			return true
		}
	}
	return false
}

func isNotFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}
