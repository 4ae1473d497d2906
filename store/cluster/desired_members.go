package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// chunk is a value of pods. Most hosts have one: a map of them would take more than what is in it.
type chunk struct {
	key     string
	members int // of tables of labels, by the good value
	value
}

// chunk returns where the chunk of a key is, or would be.
func (h *host) chunk(key string) (at int, found bool) {
	return slices.BinarySearchFunc(h.pods, key, func(c chunk, key string) int {
		return cmp.Compare(c.key, key)
	})
}

// place looks at a chunk of pods of a host again.
func (d *Desired) place(name string, c *chunk, news bool) {
	h, key, v := d.hosts[name], c.key, &c.value
	before := v.good
	if news && h.node != nil && len(before) > 0 && len(v.last) > 0 && d.replace(h, c) {
		d.keep(key, v)
		return
	}
	last, err := h.mayPlace(v.last)
	if err == nil && len(v.last) > 0 && !isChunk(name, key) {
		err = fmt.Errorf("there is no such chunk: a host has %d", maxChunks)
	}
	switch {
	case h.node == nil || v.last == nil:
		v.good = nil
	case err == nil:
		v.good = v.last
	default:
		if news {
			d.check(key, err)
		}
		if _, bad := h.mayPlace(v.good); bad != nil || !d.mayKeep(key, v) {
			v.good = nil
		}
	}
	d.keep(key, v)
	if err != nil || h.node == nil {
		last = podsOf(v.good)
	}
	if c.members = last.members(); name == d.own { // this host knows its pods better
		return
	}
	d.count(last, 1)
	d.count(podsOf(before), -1)
}

// replace takes a chunk if only some of its pods differ from the last good value, and reports
// whether it did.
func (d *Desired) replace(h *host, c *chunk) bool {
	gone, come, ok := podsChange(c.good, c.last)
	members := c.members - gone.members() + come.members()
	if !ok || members > maxMembers || h.mayAll(come) != nil {
		return false
	}
	c.good, c.members = c.last, members
	if h != d.hosts[d.own] { // this host knows its pods better
		d.count(come, 1)
		d.count(gone, -1)
	}
	return true
}

// mayAll returns an error if the host may not have one of the pods.
func (h *host) mayAll(p Pods) error {
	for i := range p.Pods {
		if err := h.node.mayHave(&p.Pods[i]); err != nil {
			return err
		}
	}
	return nil
}

// mayPlace returns the pods of a chunk, or why it is refused.
func (h *host) mayPlace(v []byte) (p Pods, err error) {
	if h.node == nil || len(v) == 0 {
		return p, nil
	}
	if p, err = Decode[Pods](v); err != nil {
		return p, err
	}
	return p, h.mayAll(p)
}

// podsOf reads a chunk that passed the checks.
func podsOf(v []byte) (p Pods) {
	if len(v) > 0 {
		_ = json.Unmarshal(v, &p) // it was read before
	}
	return p
}

// count adds the labels of pods, or takes them away.
func (d *Desired) count(p Pods, by int) {
	for i := range p.Pods {
		for key, value := range p.Pods[i].Labels {
			table := key + "=" + value
			for _, a := range p.Pods[i].Addrs {
				d.countLabel(Label{table, a}, by)
			}
		}
	}
}

func (d *Desired) countLabel(l Label, by int) {
	had := d.labels.add(l, by)
	if _, seen := d.now.labels[l]; !seen {
		d.now.labels[l] = had
	}
}

// share takes a new value of a bucket of a shared table.
func (d *Desired) share(key, table string, last []byte) {
	v := d.tables[key]
	if v == nil {
		v = &value{}
		d.tables[key] = v
	}
	v.last = last
	members, err := decodeMembers(key, last)
	if err != nil {
		d.check(key, err)
		if d.mayKeep(key, v) {
			d.keep(key, v)
			return
		}
		last = nil
	}
	before, _ := decodeMembers(key, v.good)
	v.good = last
	d.keep(key, v)
	if v.last == nil {
		delete(d.tables, key)
	}
	is := make(map[Member]bool, len(members))
	for _, m := range members {
		is[m] = true
	}
	was := make(map[Member]bool, len(before))
	for _, m := range before {
		was[m] = true
		if !is[m] {
			d.now.effects.Shared[SharedMember{table, m.Prefix}] = nil
		}
	}
	for _, m := range members {
		if !was[m] {
			d.now.effects.Shared[SharedMember{table, m.Prefix}] = &m.Value
		}
	}
}
