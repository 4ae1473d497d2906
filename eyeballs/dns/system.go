package dns

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// system is the content of the files in /etc, read together.
type system struct {
	config   Config
	hosts    hosts
	names    map[netip.Addr]string // of addresses, from the hosts file
	order    []source
	hostname string
	// mdns and myhostname mean that nsswitch.conf lists these modules.
	mdns, myhostname bool
	stamps           [3]stamp
	checked          time.Time
}

// stamp identifies the version of a file that was read.
type stamp struct {
	mtime time.Time
	size  int64
}

var files = [3]string{"resolv.conf", "hosts", "nsswitch.conf"}

// recheck is how long the files are used before they are checked again.
const recheck = time.Second

func stamps(dir string) (all [3]stamp) {
	for i, f := range files {
		if info, err := os.Stat(filepath.Join(dir, f)); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

// readSystem reads the files in dir. A file that cannot be read counts as empty.
func readSystem(dir string) *system {
	s := &system{stamps: stamps(dir), checked: time.Now()}
	s.hostname, _ = os.Hostname()
	s.config = ParseConfig(open(dir, files[0]), s.hostname)
	s.hosts = parseHosts(open(dir, files[1]))
	s.names = parseNames(open(dir, files[1]))
	line := open(dir, files[2])
	text, _ := io.ReadAll(line)
	s.order = parseNsswitch(bytes.NewReader(text))
	s.mdns = bytes.Contains(text, []byte("mdns"))
	s.myhostname = bytes.Contains(text, []byte("myhostname"))
	s.hostname = strings.ToLower(s.hostname)
	return s
}

// open returns the first maxFile bytes of a file. It is empty if the file cannot be read.
func open(dir, name string) io.Reader {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return strings.NewReader("")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return strings.NewReader("")
	}
	return bytes.NewReader(text)
}

// maxFile bounds the size of a file in memory, in bytes. Block lists in /etc/hosts reach a few
// megabytes.
const maxFile = 64 << 20

// system returns the current content of the files. It empties the cache if resolv.conf changed.
func (r *Resolver) system() *system {
	old := r.sys.Load()
	if old != nil && time.Since(old.checked) < recheck {
		return old
	}
	r.reload.Lock()
	defer r.reload.Unlock()
	if now := r.sys.Load(); now != old && now != nil {
		return now // another goroutine was faster
	}
	dir := r.Dir
	if dir == "" {
		dir = "/etc"
	}
	if old != nil && stamps(dir) == old.stamps {
		same := *old
		same.checked = time.Now()
		r.sys.Store(&same)
		return &same
	}
	read := readSystem(dir)
	if old != nil && read.stamps[0] != old.stamps[0] {
		r.Flush()
		r.good.Store(0)
	}
	r.sys.Store(read)
	return read
}
