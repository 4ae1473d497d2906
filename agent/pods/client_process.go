package pods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clientPIDKey is that of the process that asks, in the context of a request.
type clientPIDKey struct{}

// WithClientPID is the context of the requests of a process.
func WithClientPID(ctx context.Context, pid int) context.Context {
	return context.WithValue(ctx, clientPIDKey{}, pid)
}

// clientPID is the process that asks, or 0.
func clientPID(ctx context.Context) int {
	pid, _ := ctx.Value(clientPIDKey{}).(int)
	return pid
}

// process is a running one; the zero one is not known.
type process struct {
	pid  int
	name string
}

func (p process) String() string {
	if p.pid == 0 {
		return "a process that is not known"
	}
	return fmt.Sprintf("%s, process %d", p.name, p.pid)
}

// keepsPortsFor reports whether the process is a part of podman that holds sockets at the ports of
// its containers, which take nothing themselves. That is the monitor of a container, and from
// podman 5 on podman itself while it starts one: then one that it started asks.
func (p process) keepsPortsFor(client int) bool {
	return p.name == "conmon" || p.name == "podman" && startedBy(p.pid, client)
}

// generations bounds the walk from a process to those that started it.
const generations = 64

// startedBy reports whether ancestor is pid, started it, or started one that did.
func startedBy(ancestor, pid int) bool {
	for range generations {
		if pid <= 1 {
			return false
		}
		if pid == ancestor {
			return true
		}
		pid = parentOf(pid)
	}
	return false
}

// parentOf is the process that started another one, or 0.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name stands in parentheses and may contain some: "812 (a b) c) S 1 ...".
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return 0
	}
	return parent
}

// ownerOf is a process that has a socket.
func ownerOf(inode uint32) process {
	want := fmt.Sprintf("socket:[%d]", inode)
	dirs, _ := filepath.Glob("/proc/[0-9]*/fd") // the pattern is a good one
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(dir, f.Name())); err != nil || to != want {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
			if err != nil {
				continue
			}
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(dir), "comm"))
			return process{pid, strings.TrimSpace(string(name))}
		}
	}
	return process{}
}
