package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/flock"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/members"
)

// A store that takes the place of another one is made beside it. A run that is cut off before it is
// whole changes nothing. From then on it has another name, and the next command that starts a
// member finishes what is left to do.
const (
	newDir      = "etcd.new"      // not whole: the next run removes it
	restoredDir = "etcd.restored" // whole
	restoreFile = "restore.json"  // in both: the replacement
)

// replacement is what belongs to a store that takes the place of another one.
type replacement struct {
	Config config `json:"config"`
	Epoch  uint64 `json:"epoch"`
	// WithoutKeys has this host forget the keys of administrators.
	WithoutKeys bool `json:"withoutKeys,omitempty"`
}

// hold keeps other processes from starting the member of this directory, or replacing its store,
// until the file is closed.
func (h home) hold() (*os.File, error) {
	f, err := flock.Open(string(h), etcd.ErrRuns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: run weir cluster init first, or name the "+
			"directory with --dir", h)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h, err)
	}
	return f, nil
}

// replaceStore writes what was prepared into an external etcd, or into a new store that takes the
// place of the one before. kept is the directory of that one, "" if there was none. The caller
// holds the directory.
func (h home) replaceStore(ctx context.Context, r replacement, p *members.Restoration) (
	kept string, err error) {
	if r.Config.Etcd == nil {
		if err := h.build(ctx, r, p); err != nil {
			return "", err
		}
		return h.finish()
	}
	d, err := h.driver(r.Config)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if err := p.Write(ctx, d); err != nil {
		return "", err
	}
	return "", r.record(h)
}

// build makes the new store beside the one that there is.
func (h home) build(ctx context.Context, r replacement, p *members.Restoration) error {
	dir := h.file(newDir)
	err := os.RemoveAll(dir)
	if err == nil {
		err = fill(ctx, dir, r.Config, p)
	}
	if err == nil {
		err = writeJSON(filepath.Join(dir, restoreFile), r)
	}
	if err == nil {
		err = atomicfile.Replace(dir, h.file(restoredDir))
	}
	if err != nil {
		return fmt.Errorf("the store is as it was before: %w",
			errors.Join(err, os.RemoveAll(dir)))
	}
	return nil
}

// fill starts a member of one in a directory, and writes what was prepared.
func fill(ctx context.Context, dir string, c config, p *members.Restoration) error {
	member, err := etcd.Start(ctx, etcd.MemberConfig{Dir: dir, Name: c.Name,
		Heartbeat: time.Duration(c.Heart)})
	if err != nil {
		return err
	}
	defer member.Close()
	d, err := etcd.Open(etcd.Config{MaxRead: maxContent,
		Client: clientv3.Config{Endpoints: []string{member.Endpoint()}}})
	if err != nil {
		return err
	}
	defer d.Close()
	return p.Write(ctx, d)
}

// finish puts a new store that is whole in place, as a run that was cut off has not, and removes
// one that is not whole. kept is where the store before is, "" if nothing was to be done or there
// was none. The caller holds the directory.
func (h home) finish() (kept string, err error) {
	for _, step := range h.steps(&kept) {
		if err := step(); err != nil {
			return "", fmt.Errorf("the new store is in %s, and not in place yet: %w; the next "+
				"start of weir-store, or the same command, tries again", h.file(restoredDir), err)
		}
	}
	return kept, nil
}

// steps are what finish does. Each may be done again. kept is set to where the store before is.
func (h home) steps(kept *string) []func() error {
	steps := []func() error{func() error { return os.RemoveAll(h.file(newDir)) }}
	if _, err := os.Lstat(h.file(restoredDir)); err == nil {
		steps = append(steps, h.recordRestored, func() error { return h.setAside(kept) },
			func() error { return atomicfile.Replace(h.file(restoredDir), h.file(etcdDir)) })
	}
	return append(steps, func() error {
		err := os.Remove(filepath.Join(h.file(etcdDir), restoreFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// recordRestored is record of the new store that is whole.
func (h home) recordRestored() error {
	var r replacement
	text, err := os.ReadFile(filepath.Join(h.file(restoredDir), restoreFile))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return err
	}
	return errors.Join(h.writeConfig(r.Config), r.record(h))
}

// record has this host know what it knows of the store without it.
func (r *replacement) record(h home) error {
	err := h.writeEpoch(r.Epoch)
	if err == nil && r.WithoutKeys {
		err = atomicfile.Remove(h.file(keysFile))
	}
	return err
}

// setAside moves the store before away, under a name that is free.
func (h home) setAside(kept *string) error {
	data := h.file(etcdDir)
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.before-%d", data, n)
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		err := os.Rename(data, to)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			*kept = to
		}
		return err
	}
}

// checkStore returns an error where a member would begin an empty store in the place of one that is
// gone. That of several gets what it had from the others.
func (h home) checkStore(c config) error {
	if c.Etcd != nil || c.Peers != nil && c.Peers.Existing {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(h.file(etcdDir), "data", "member")); err != nil {
		return fmt.Errorf("the store is gone: %w; put it back, restore a backup (weir cluster "+
			"restore FILE), or make it from the copy of a host (weir cluster init --from-copy)",
			err)
	}
	return nil
}
