package unixsocket

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ofNamespace is added to the inode of a user namespace of root: no user has such a number.
const ofNamespace = 1 << 32

// Account is the user to whom a connection counts. In a user namespace a user may be any of 65,536
// subordinate ones, as in a rootless container: there it is the user who made the namespace. Of one
// that root made, as Docker does with userns-remap, all users are one account, whose number is none
// of a user. It is -1 if the process that connected has gone, or has become another user. Without
// the right to look at other processes (CAP_SYS_PTRACE) it is the user who connects.
func Account(c net.Conn) int {
	pid, uid := Peer(c)
	switch {
	case uid == 0:
		return 0
	case pid == 0:
		return -1
	}
	dir, err := unix.Open(fmt.Sprint("/proc/", pid), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(dir)
	ns, err := unix.Openat(dir, "ns/user", unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		return uid
	}
	if err != nil {
		return -1
	}
	// The id may belong to another process by now. One with the same user counts to the same: no
	// user gets subordinate ones of another.
	if effective, err := effectiveUser(dir); err != nil || effective != uid {
		unix.Close(ns)
		return -1
	}
	owner, inode, err := ownerOf(ns)
	switch {
	case err != nil:
		return -1
	case inode == 0:
		return uid
	case owner == 0:
		return ofNamespace + int(inode)
	}
	return owner
}

// effectiveUser returns the user of a process by its directory in /proc.
func effectiveUser(dir int) (uid int, err error) {
	fd, err := unix.Openat(dir, "status", unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), "status")
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if ids, found := strings.CutPrefix(lines.Text(), "Uid:"); found {
			var real int
			_, err := fmt.Sscan(ids, &real, &uid)
			return uid, err
		}
	}
	return 0, fmt.Errorf("no user in the status of a process: %w", lines.Err())
}

// ownerOf returns who made a user namespace and its inode, of nested ones of the outermost below
// ours: those inside can make no other one. Both are 0 for our own. It closes ns.
func ownerOf(ns int) (owner int, inode uint64, err error) {
	var ours, now unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &ours); err != nil {
		unix.Close(ns)
		return 0, 0, err
	}
	for {
		err := unix.Fstat(ns, &now)
		if err != nil || now.Dev == ours.Dev && now.Ino == ours.Ino {
			unix.Close(ns)
			return owner, inode, err
		}
		inode = now.Ino
		uid, err := unix.IoctlGetUint32(ns, unix.NS_GET_OWNER_UID)
		parent := -1
		if err == nil {
			owner = int(uid)
			parent, err = unix.IoctlRetInt(ns, unix.NS_GET_PARENT)
		}
		unix.Close(ns)
		if err != nil {
			return 0, 0, err
		}
		ns = parent
	}
}
