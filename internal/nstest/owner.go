package nstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// namePrefix starts the name of everything that this package makes:
// weir-PID-STARTTIME-SERIAL-LABEL.
const namePrefix = "weir-"

var serial atomic.Uint64

// ownName returns a name that no other lab has and that contains its process, for sweep.
func ownName(label string) (string, error) {
	pid := os.Getpid()
	start, err := startTime(pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%d-%d-%s", namePrefix, pid, start, serial.Add(1), label), nil
}

// orphaned reports whether name was made by a process that is gone. Names of another form belong to
// other programs and are never orphaned.
func orphaned(name string) bool {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return false
	}
	fields := strings.SplitN(rest, "-", 4)
	if len(fields) != 4 {
		return false
	}
	pid, err1 := strconv.Atoi(fields[0])
	start, err2 := strconv.ParseUint(fields[1], 10, 64)
	_, err3 := strconv.ParseUint(fields[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || pid <= 0 {
		return false
	}
	now, err := startTime(pid)
	if os.IsNotExist(err) {
		return true
	}
	return err == nil && now != start
}

// startTime returns when a process started, in clock ticks since boot (field 22 of /proc/PID/stat,
// proc(5)). Together with the id it names a process for good, although ids are used again.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The second field is the command in brackets and may hold anything, brackets and blanks too.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
