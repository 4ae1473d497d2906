package test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/packet/build"
)

// flows sends datagrams of so many flows to the host, some thousand at a time.
func (h *podHost) flows(count int) {
	h.t.Helper()
	err := h.outside.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		from, to := netip.MustParseAddr("10.66.0.2"), netip.MustParseAddr("10.66.0.1")
		for i := range count {
			b, err := build.Packet(build.IPv4{Src: from, Dst: to},
				build.UDP{SrcPort: uint16(1024 + i%60000), DstPort: uint16(5000 + i/60000)})
			if err != nil {
				return err
			}
			if err := unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil {
				return err
			}
			if i%2000 == 0 {
				time.Sleep(5 * time.Millisecond) // the other end's queue is short
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// cpuTime returns how long a process has computed so far, proc_pid_stat(5).
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	var sum time.Duration
	for _, f := range strings.Fields(rest)[11:13] { // utime and stime, in ticks of 10 ms
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}

// sorted is the CPU time that a processor takes to sort a million numbers where the bounds below
// hold.
const sorted = 75 * time.Millisecond

// slowness is how many times as long a processor of this machine takes for the same, at least 1.
func slowness(t *testing.T) float64 {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	shortest := time.Hour
	for range 5 {
		random, numbers := rand.New(rand.NewPCG(1, 2)), make([]uint64, 1_000_000)
		for i := range numbers {
			numbers[i] = random.Uint64()
		}
		before := used()
		slices.Sort(numbers)
		shortest = min(shortest, used()-before)
	}
	t.Logf("a million numbers are sorted in %v", shortest)
	return max(1, float64(shortest)/float64(sorted))
}

// TestLongRestartIsQuick measures from the start of `weir up` to its ready line, with twelve pods,
// states and rules in force. A slower processor may take longer.
func TestLongRestartIsQuick(t *testing.T) {
	t.Parallel()
	many := "add 1 check-state\n"
	for i := range 29 {
		many += fmt.Sprintf("add %d allow tcp from 10.%d.0.0/16 to any %d recv eth* setup "+
			"keep-state\n", 2+i, i, 1000+i)
	}
	settings := podSettings +
		"[states]\nhalf_open = 200000\nper_source = 0\n[timeouts]\nudp = 600\n"
	h := newPodHostWith(t, settings, many+"add 65000 allow udp from any to me keep-state\n")
	for i := range 12 {
		h.attach(fmt.Sprintf("p%d", i), "--label", fmt.Sprintf("app=a%d", i%4))
	}
	slow := slowness(t)
	measure := func(what string, most time.Duration) {
		t.Helper()
		most = time.Duration(slow * float64(most))
		var took, cpu []time.Duration
		for range 5 {
			h.kill()
			began := time.Now()
			h.start()
			took, cpu = append(took, time.Since(began)),
				append(cpu, cpuTime(t, h.agent.Process.Pid))
		}
		var status api.Status
		h.json(&status, "status")
		slices.Sort(took)
		slices.Sort(cpu)
		t.Logf("%-40s %6d rules %6d states: %4d ms, %4d ms of CPU (of 5: %v)", what, status.Rules,
			status.States,
			took[0].Milliseconds(), cpu[0].Milliseconds(), took)
		if took[0] > most && cpu[0] > most { // a busy machine takes longer
			t.Errorf("%s: %v, more than %v", what, took[0], most)
		}
	}
	measure("12 pods", 300*time.Millisecond)
	h.flows(100000)
	measure("12 pods, states", 300*time.Millisecond)
	var long strings.Builder
	long.WriteString(many)
	for i := range 10000 {
		fmt.Fprintf(&long, "add %d allow tcp from 172.%d.%d.0/24 to any %d setup keep-state\n", 100+
			i, 16+i/256%16, i%256, 1+i%5000)
	}
	h.file("etc/weir/rules", long.String()+"add 65000 allow udp from any to me keep-state\n")
	h.kill()
	h.start()
	measure("12 pods, states, many rules", time.Second)
}
