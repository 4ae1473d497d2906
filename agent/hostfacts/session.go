// Package hostfacts looks at the machine for commands that advise its owner: the session that asks,
// and what `weir setup` needs to know.
package hostfacts

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirnet/weir/agent/api"
)

// Session returns the ssh connection in which this process runs; false if there is none. sudo
// removes SSH_CONNECTION from the environment, so the processes above this one are asked, too.
func Session() (api.Session, bool) { return sessionOf("/proc", os.Getpid()) }

// sessionOf walks from a process of a proc file system to its ancestors. What cannot be read, of
// another user for instance, says nothing.
func sessionOf(proc string, pid int) (api.Session, bool) {
	for depth := 0; pid > 1 && depth < 64; depth++ {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if b, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil {
			for v := range strings.SplitSeq(string(b), "\x00") {
				if text, ok := strings.CutPrefix(v, "SSH_CONNECTION="); ok {
					return parseSession(text)
				}
			}
		}
		parent, ok := parentOf(dir)
		if !ok {
			break
		}
		pid = parent
	}
	return api.Session{}, false
}

// parentOf returns the parent of the process in a directory of proc(5). Its name, in parentheses,
// may hold anything.
func parentOf(dir string) (int, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, false
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	n, err := strconv.Atoi(fields[1])
	return n, err == nil
}

// parseSession reads the four words of SSH_CONNECTION: client address and port, server address and
// port (ssh(1)).
func parseSession(text string) (s api.Session, ok bool) {
	w := strings.Fields(text)
	if len(w) != 4 {
		return s, false
	}
	var fine [2]bool
	s.From, fine[0] = endOf(w[0], w[1])
	s.To, fine[1] = endOf(w[2], w[3])
	return s, fine[0] && fine[1]
}

func endOf(address, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), err == nil && bad == nil
}
