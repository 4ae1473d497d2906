package poller

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

// read reads one byte, and counts its attempts.
func read(p *Poller, fd int, attempts *int) (b byte, err error) {
	var buf [1]byte
	e := p.Run(func(ep uintptr) bool {
		p.Begin(ep)
		*attempts++
		if _, err = unix.Read(fd, buf[:]); err == unix.EAGAIN {
			p.Wait(ep)
			return false
		}
		return true
	})
	if e != nil {
		err = e
	}
	return buf[0], err
}

// TestWaits: nothing is watched until a reader waits. Each of many bytes wakes a waiting reader.
func TestWaits(t *testing.T) {
	r, w := pipe(t)
	var in Poller
	if err := in.Open(r, unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if in.armed {
		t.Error("a new descriptor is watched")
	}
	attempts := 0
	for i := range 3 { // there already
		unix.Write(w, []byte{byte(i)})
		if b, err := read(&in, r, &attempts); b != byte(i) || err != nil {
			t.Fatal(b, err)
		}
	}
	if attempts != 3 || in.armed {
		t.Errorf("%d attempts for 3 bytes that were there; watched: %v", attempts, in.armed)
	}
	got := make(chan byte)
	go func() {
		for range 200 {
			b, err := read(&in, r, &attempts)
			if err != nil {
				t.Error(err)
			}
			got <- b
		}
	}()
	for i := range 200 {
		if i%2 == 0 {
			time.Sleep(100 * time.Microsecond) // sometimes it waits, sometimes not
		}
		unix.Write(w, []byte{byte(i)})
		select {
		case b := <-got:
			if b != byte(i) {
				t.Fatalf("byte %d is %d", i, b)
			}
		case <-time.After(5 * time.Minute):
			t.Fatalf("byte %d did not wake the reader", i)
		}
	}
}

// TestEnds: a deadline and Close end a wait.
func TestEnds(t *testing.T) {
	r, _ := pipe(t)
	var in Poller
	if err := in.Open(r, unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	attempts := 0
	if err := in.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := read(&in, r, &attempts); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	in.SetDeadline(time.Time{})
	time.AfterFunc(10*time.Millisecond, func() { in.Close() })
	if _, err := read(&in, r, &attempts); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := in.Control(func() { t.Error("called after Close") }); err == nil {
		t.Error("Control works after Close")
	}
}
