package nl

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxTries bounds how often a request is repeated. A dump is interrupted only when something
// changed meanwhile, so that many interruptions in a row mean a machine on which links come and go
// all the time.
const maxTries = 40

// retryPause is the wait before the second try; it grows with every try, to 40 ms at the last.
const retryPause = 50 * time.Microsecond

// interrupted reports whether err means that the request should simply be made again.
func interrupted(err error) bool {
	return errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EINTR)
}

// read makes a request that changes nothing until its answer is whole.
func read[T any](what string, ask func() (T, error)) (T, error) {
	var zero T
	for try := 1; ; try++ {
		answer, err := ask()
		if err == nil {
			return answer, nil
		}
		if !interrupted(err) || try == maxTries {
			return zero, fmt.Errorf("%s: %w", what, err)
		}
		time.Sleep(retryPause * time.Duration(try*try/2))
	}
}

// change makes a request that changes something. An interrupted request may have been carried out,
// so that a repetition which fails with one of the errors in done has found its own work.
func change(what string, ask func() error, done ...error) error {
	for try := 1; ; try++ {
		err := ask()
		if err == nil {
			return nil
		}
		if try > 1 {
			for _, d := range done {
				if errors.Is(err, d) {
					return nil
				}
			}
		}
		if !interrupted(err) || try == maxTries {
			return fmt.Errorf("%s: %w", what, err)
		}
		time.Sleep(retryPause * time.Duration(try*try/2))
	}
}
