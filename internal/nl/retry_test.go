package nl

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestReadAsksUntilTheAnswerIsWhole(t *testing.T) {
	for _, hiccup := range []error{netlink.ErrDumpInterrupted, unix.EINTR} {
		asked := 0
		got, err := read("list", func() (int, error) {
			if asked++; asked < 4 {
				return 1, hiccup
			}
			return 2, nil
		})
		if got != 2 || err != nil || asked != 4 {
			t.Errorf("%v: got %d, %v after %d requests, want 2 after 4", hiccup, got, err, asked)
		}
	}
}

func TestReadNeverHandsOutHalfAnAnswer(t *testing.T) {
	got, err := read("list", func() (int, error) { return 7, netlink.ErrDumpInterrupted })
	if got != 0 || !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("got %d, %v, want nothing and the interruption", got, err)
	}
}

func TestReadDoesNotRepeatARefusal(t *testing.T) {
	asked := 0
	_, err := read("list", func() (int, error) { asked++; return 0, unix.EPERM })
	if asked != 1 || !errors.Is(err, unix.EPERM) {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestChangeFindsItsOwnWork(t *testing.T) {
	asked := 0
	interruptedThen := func(err error) func() error {
		asked = 0
		return func() error {
			if asked++; asked == 1 {
				return unix.EINTR
			}
			return err
		}
	}
	if err := change("add", interruptedThen(unix.EEXIST), unix.EEXIST); err != nil {
		t.Errorf("an interrupted request that had been carried out failed: %v", err)
	}
	if err := change("add", interruptedThen(unix.EPERM), unix.EEXIST); !errors.Is(err, unix.EPERM) {
		t.Errorf("a refusal after an interruption was lost: %v", err)
	}
	if err := change("add", func() error {
		return unix.EEXIST
	}, unix.EEXIST); !errors.Is(err, unix.EEXIST) {
		t.Errorf("what another program made was taken for our own: %v", err)
	}
}
