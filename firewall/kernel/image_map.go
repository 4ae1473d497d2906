package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// imageMapLocked writes an image into a map that no packet reads: that of the rules before those in
// force if it fits, else a new one. To make one of tens of megabytes takes as long as to write it.
func (e *Engine) imageMapLocked(im *image) (*ebpf.Map, error) {
	m := e.spare
	if m == nil || im.count > int(m.MaxEntries()) || im.count < int(m.MaxEntries())/2 {
		var err error
		m, err = ebpf.NewMap(&ebpf.MapSpec{
			Name: "weir_image", Type: ebpf.Array, KeySize: 4, ValueSize: rowSize,
			MaxEntries: uint32(im.count + im.count/64 + 1), Flags: innerMap,
		})
		if err != nil {
			return nil, fmt.Errorf("make a map of %d rows for the rules: %w", im.count, err)
		}
	}
	if err := im.write(m); err != nil {
		return nil, errors.Join(err, e.closeUnusedLocked(m))
	}
	return m, nil
}

// takeImageLocked records that an image is the one in force. unread means that the packets of the
// image before are through.
func (e *Engine) takeImageLocked(m *ebpf.Map, unread bool) {
	before, spare := e.image, e.spare
	e.image, e.spare = m, nil
	if unread {
		e.spare = before
	}
	for _, old := range []*ebpf.Map{before, spare} {
		_ = e.closeUnusedLocked(old) // a descriptor
	}
}

// closeUnusedLocked closes a map that holds neither the image in force nor the one before it.
func (e *Engine) closeUnusedLocked(m *ebpf.Map) error {
	if m == nil || m == e.image || m == e.spare {
		return nil
	}
	return m.Close()
}
