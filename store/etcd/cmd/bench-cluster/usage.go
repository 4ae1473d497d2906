package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpu returns the processor time of a process.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * time.Second / 100, err // USER_HZ
}

// ownCPU returns the processor time of this process, more exactly.
func ownCPU() (time.Duration, error) {
	var used syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), err
}

// spent is the processor time of weir-store, and of this process with all hosts.
type spent struct{ store, hosts time.Duration }

func (b *bench) spent() (s spent, err error) {
	if s.store, err = cpu(b.store.Process.Pid); err != nil {
		return s, err
	}
	s.hosts, err = ownCPU()
	return s, err
}

// rowsOfChange prints what each host and weir-store spent on each change since then. With as many
// hosts on as few processors as here, that bounds the rate: the sum times the hosts is the
// processor time of one change.
func (b *bench) rowsOfChange(begin spent, changes int) error {
	end, err := b.spent()
	if err != nil {
		return err
	}
	each := func(d time.Duration) float64 {
		return float64(d.Nanoseconds()) / 1000 / float64(changes*b.hosts)
	}
	b.row("processor time of a host for each change", each(end.hosts-begin.hosts), 0, "us")
	b.row("of weir-store for each change and host", each(end.store-begin.store), 0, "us")
	return nil
}

// memory returns the resident memory of a process in bytes.
func memory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// percentile returns a percentile in milliseconds.
func percentile(of []time.Duration, p float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return float64(of[min(int(p*float64(len(of))), len(of)-1)]) / 1e6
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
