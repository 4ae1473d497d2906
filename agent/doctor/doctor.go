// Package doctor finds out what the running kernel can do for Weir. Every answer comes from trying
// the thing itself. A program that uses the helper is loaded, and a map of the kind is made. A hook
// is attached in a network namespace that lives as long as the attempt. Nothing is concluded from a
// version number, because distributions carry features back.
package doctor

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Finding is the answer about one feature.
type Finding struct {
	Name    string `json:"name"`
	Present bool   `json:"present"`
	Untried bool   `json:"untried,omitempty"` // not present because this user may not try it
	// the main job, guarding an interface, cannot run without it
	Needed bool   `json:"needed"`
	Detail string `json:"detail,omitempty"` // a version, a place, or what the attempt failed with
	Lost   string `json:"lost,omitempty"`   // what is lost without it
	Hint   string `json:"hint,omitempty"`   // what to do about it
}

// Report is what the doctor found.
type Report struct {
	Version  int       `json:"version"`
	Kernel   string    `json:"kernel"`
	Able     bool      `json:"able"` // the main job can run
	Findings []Finding `json:"findings"`
}

// Probe tries everything. pins is the directory for pinned objects, and files are those that decide
// what the node does; they are looked at, not changed.
func Probe(pins string, files ...string) Report {
	r := Report{Version: 1, Kernel: release(), Able: true}
	for _, c := range checks(pins, files) {
		f := Finding{Name: c.name, Needed: c.needed, Present: true}
		detail, err := c.try()
		f.Detail = detail
		if err != nil {
			f.Present, f.Detail, f.Lost, f.Hint = false, reason(err), c.lost, c.hint
			f.Untried = c.name != checkPrivilege && errors.Is(err, os.ErrPermission) &&
				os.Geteuid() != 0
		}
		r.Findings = append(r.Findings, f)
	}
	r.decide()
	return r
}

// decide finds out whether the main job can run: everything needed is there, and one of the two
// kinds of hooks.
func (r *Report) decide() {
	hooks := 0
	for _, f := range r.Findings {
		if f.Needed && !f.Present {
			r.Able = false
		}
		if f.Present && (f.Name == checkTCX || f.Name == checkClsact) {
			hooks++
		}
	}
	if hooks == 0 {
		r.Able = false
	}
}

// check is one thing to try. try returns a detail for people.
type check struct {
	name   string
	needed bool
	lost   string
	hint   string
	try    func() (string, error)
}

// release returns the kernel's release as uname -r does.
func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// reason shortens an error to what a person can use.
func reason(err error) string {
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return "this kernel does not have it"
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		return "only root can try it"
	}
	return err.Error()
}

// fileExists is the check that a file is there.
func fileExists(path string) func() (string, error) {
	return func() (string, error) {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s is missing", path)
		}
		return path, nil
	}
}
