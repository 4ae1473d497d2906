package client

import (
	"errors"
	"time"

	"github.com/weirnet/weir/store"
)

// unreachedPause bounds the pauses while no weir-store can be connected to. An attempt costs a
// store that is away nothing, and a host that hears of its return late enforces old rules for so
// long. A store that answers and fails is one under load: there the pauses grow.
const unreachedPause = 1500 * time.Millisecond

// Pause returns how long to wait after an error of a Client, the last of a number in a row, from 1.
// random is in [0, 1).
func Pause(failures int, err error, random float64) time.Duration {
	pause := store.Pause(failures, random)
	var unreached *unreachedError
	if errors.As(err, &unreached) {
		pause = min(pause, time.Duration(random*float64(unreachedPause)))
	}
	return pause
}

// unreachedError means that no weir-store could be connected to.
type unreachedError struct{ err error }

func (e *unreachedError) Error() string { return e.err.Error() }

func (e *unreachedError) Unwrap() error { return e.err }

// dialError means that there is no connection, as opposed to one that failed.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }

func (e *dialError) Unwrap() error { return e.err }
