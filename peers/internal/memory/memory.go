// Package memory reads how much memory a process uses.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Of returns the memory of a process in MiB: the resident set, and the part of it that is private,
// without tables of the kernel that it maps.
func Of(pid int) (private, all float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "RssAnon:":
			private = kb / 1024
		case "VmRSS:":
			all = kb / 1024
		}
	}
	return private, all, err
}
