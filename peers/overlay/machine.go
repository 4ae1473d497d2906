package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// jiffies is the machine's CPU time so far, in units of 10 ms (USER_HZ is 100).
type jiffies struct{ busy, stolen float64 }

func readMachine() (j jiffies, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return j, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal ...
	if len(f) < 9 || f[0] != "cpu" {
		return j, fmt.Errorf("/proc/stat: %q", line)
	}
	for _, k := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseFloat(f[k], 64)
		if err != nil {
			return j, err
		}
		if k == 8 {
			j.stolen = n
		} else {
			j.busy += n
		}
	}
	return j, nil
}

// foreign is the part of the machine's CPUs that other programs or the host used since j; own is
// what the run used.
func (j jiffies) foreign(wall, own time.Duration) (float64, error) {
	now, err := readMachine()
	if err != nil {
		return 0, err
	}
	used := time.Duration((now.busy-j.busy+now.stolen-j.stolen)*10) * time.Millisecond
	return float64(used-own) / float64(wall) / float64(runtime.NumCPU()), nil
}

// foreignLimit is how much of that a run may have; what soft interrupts take is among it.
const foreignLimit = 0.12
