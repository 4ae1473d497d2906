package main

import (
	"syscall"
	"testing"
)

func TestClientLimit(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	low := syscall.Rlimit{Cur: min(1000, before.Max), Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	// The limit is raised as far as the upper limit allows.
	n := int(before.Max-256) / 9 * 4
	if got, err := clientLimit(min(n, 1000)); err != nil || got != min(n, 1000) {
		t.Errorf("limit %d, %v; want %d", got, err, min(n, 1000))
	}
	// More than any system allows: as many as possible.
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	if got, err := clientLimit(1 << 40); err != nil || got != int(now.Cur-256)/9*4 {
		t.Errorf("limit %d, %v; want %d", got, err, (now.Cur-256)/9*4)
	}
	none := syscall.Rlimit{Cur: 200, Max: now.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	if got, err := clientLimit(1 << 40); err == nil {
		t.Errorf("limit %d with 200 files", got)
	}
}
