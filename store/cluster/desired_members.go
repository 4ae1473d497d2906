package cluster

// place looks at a chunk of pods of a host again.
func (d *Desired) place(name, key string, news bool) {
	h := d.hosts[name]
	v := h.pods[key]
	before := v.good
	err := h.mayPlace(v.last)
	switch {
	case h.node == nil || v.last == nil:
		v.good = nil
	case err == nil:
		v.good = v.last
	default:
		if news {
			d.check(key, err)
		}
		if v.good != nil && h.mayPlace(v.good) != nil {
			v.good = nil
		}
	}
	d.keep(key, v)
	if v.last == nil {
		delete(h.pods, key)
	}
	if name == d.own { // this host knows its pods better
		return
	}
	d.count(v.good, 1)
	d.count(before, -1)
}

// mayPlace returns why a chunk of pods of a host is refused.
func (h *host) mayPlace(v []byte) error {
	if h.node == nil || len(v) == 0 {
		return nil
	}
	p, err := Decode[Pods](v)
	if err != nil {
		return err
	}
	for i := range p.Pods {
		if err := h.node.mayHave(&p.Pods[i]); err != nil {
			return err
		}
	}
	return nil
}

// count adds the labels of a chunk that passed the checks, or takes them away.
func (d *Desired) count(v []byte, by int) {
	if len(v) == 0 {
		return
	}
	p, err := Decode[Pods](v)
	if err != nil { // it passed the checks before
		return
	}
	for i := range p.Pods {
		for _, table := range p.Pods[i].Tables() {
			for _, a := range p.Pods[i].Addrs {
				d.countLabel(Label{table, a}, by)
			}
		}
	}
}

func (d *Desired) countLabel(l Label, by int) {
	had := d.labels[l]
	if _, seen := d.now.labels[l]; !seen {
		d.now.labels[l] = had > 0
	}
	if n := int(had) + by; n > 0 {
		d.labels[l] = uint32(n)
	} else {
		delete(d.labels, l)
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
		d.keep(key, v)
		return
	}
	before, _ := decodeMembers(key, v.good)
	v.good = last
	d.keep(key, v)
	if last == nil {
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
			d.now.effects.Shared[Shared{table, m.Prefix}] = nil
		}
	}
	for _, m := range members {
		if !was[m] {
			d.now.effects.Shared[Shared{table, m.Prefix}] = &m.Value
		}
	}
}

func sameKeys(a, b []Key) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
