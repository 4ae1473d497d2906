package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// errNotRead: the pins are of an unknown layout, their bytes may mean anything.
var errNotRead = errors.New("a layout that this version does not know")

// firstRead to layout are the layouts whose states are read. They have these in common, which must
// never change here; a layout that changes one of them gets a reader of its own:
//
//	config  begins with layout, current (its lowest byte is the slot of the image in force),
//	        32 bits each; from 13 on local_mark and seed lie where they are now
//	images  by slot; rows of 2048 bytes: the first begins with the number of rules, from the
//	        second on lie codes of 64 bytes, beginning with key (64 bits) and id (32 bits)
//	labels  {kind, id} to 64 bytes of name; kind 2 is a flow; from 13 on name_ids
//	tags    sets of eight words, states of eight times four words of addresses and sixteen
//	        sides of 64 bytes
//	counters by the lower 16 bits of a rule's id
//
// Before 4, that a connection was opened (Proved) is said by its tag alone. Before 13 so is that a
// flow of another protocol than TCP, or one that began in mid-stream, was answered. Before 13, keys
// hold neither the link of link-local ends nor the asking end and the type of an ICMP query. The id
// of the query is the port of both ends, and other ICMP messages have port 0.
const (
	firstRead      = 2
	firstProved    = 4
	firstProvedAll = 13
	firstLinks     = 13
	firstPhase     = 13 // the inner entry of a translation holds the phase of its flow
	firstNameIDs   = 13 // the names of flows lie in name_ids, before in labels
	firstSeed      = 13
	firstRuled     = 16 // translations of rules with nat say so
)

// previousPins are the pinned maps of another engine.
type previousPins struct {
	layout uint32
	maps   []*ebpf.Map
	tags   *ebpf.Memory
	sets   *ebpf.Memory
	count  *ebpf.Map
	bases  *ebpf.Map
	ids    map[uint64]uint32 // program.Rule.Key to id
	keys   map[uint32]uint64 // and back
	flows  map[uint8]string
	// The port of a masqueraded flow follows from the seed, or nil: with the same one, a flow that
	// began too late to be copied keeps its port.
	seed *[32]uint64
	// that of packets which were evaluated, or 0: with the same one, a packet may leave by a hook
	// of the other engine while the hooks change
	mark uint32
}

// openPins opens what is pinned in a directory, or returns errNotRead, or fs.ErrNotExist if it is
// not whole.
func openPins(dir string) (_ *previousPins, err error) {
	p := &previousPins{ids: map[uint64]uint32{}, keys: map[uint32]uint64{},
		flows: map[uint8]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	config, err := p.open(dir, completeName)
	if err != nil {
		return nil, err
	}
	b, err := config.LookupBytes(uint32(0))
	if err != nil {
		return nil, err
	}
	if len(b) < 8 {
		return nil, errNotRead
	}
	p.layout = *(*uint32)(unsafe.Pointer(&b[0]))
	current := *(*uint32)(unsafe.Pointer(&b[4])) & currentSlot
	if p.layout < firstRead || p.layout > layout {
		return nil, errNotRead
	}
	if at := unsafe.Offsetof(weirConfig{}.Seed); p.layout >= firstSeed &&
		len(b) >= int(at+unsafe.Sizeof(weirConfig{}.Seed)) {
		p.seed = new([32]uint64)
		copy(bytesOf(p.seed[:]), b[at:])
		p.mark = *(*uint32)(unsafe.Pointer(&b[unsafe.Offsetof(weirConfig{}.LocalMark)]))
	}
	tags, err := p.open(dir, "tags")
	if err != nil {
		return nil, err
	}
	states, err := p.open(dir, "states")
	if err != nil {
		return nil, err
	}
	if tags.ValueSize() != uint32(unsafe.Sizeof(weirTagLine{})) ||
		states.ValueSize() != uint32(unsafe.Sizeof(weirSet{})) ||
		tags.MaxEntries() != states.MaxEntries() {
		return nil, errNotRead
	}
	if p.tags, err = tags.Memory(); err != nil {
		return nil, err
	}
	if p.sets, err = states.Memory(); err != nil {
		return nil, err
	}
	if p.count, err = p.open(dir, "counters"); err != nil {
		return nil, err
	}
	if p.bases, err = p.open(dir, "bases"); err != nil {
		return nil, err
	}
	if err := p.readRules(dir, current); err != nil {
		return nil, err
	}
	return p, p.readFlows(dir)
}

func (p *previousPins) open(dir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
	if err == nil {
		p.maps = append(p.maps, m)
	}
	return m, err
}

// readRules reads the ids of the rules that were in force.
func (p *previousPins) readRules(dir string, current uint32) error {
	images, err := p.open(dir, "images")
	if err != nil {
		return err
	}
	var m *ebpf.Map
	if err := images.Lookup(current, &m); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer m.Close()
	if m.ValueSize() != rowSize {
		return errNotRead
	}
	row := make([]byte, rowSize)
	if err := m.Lookup(uint32(0), row); err != nil {
		return err
	}
	const code = 64
	for left, at := int(*(*uint32)(unsafe.Pointer(&row[0]))), uint32(firstCodes); left > 0; at++ {
		if err := m.Lookup(at, row); err != nil {
			return fmt.Errorf("row %d of the rules: %w", at, err)
		}
		for i := 0; i < rowSize/code && left > 0; i++ {
			key, id := *(*uint64)(unsafe.Pointer(&row[i*code])),
				*(*uint32)(unsafe.Pointer(&row[i*code+8]))
			p.ids[key], p.keys[id] = id, key
			left--
		}
	}
	return nil
}

// readFlows reads the names of flows.
func (p *previousPins) readFlows(dir string) error {
	name := "name_ids"
	if p.layout < firstNameIDs {
		name = "labels"
	}
	m, err := p.open(dir, name)
	if err != nil {
		return err
	}
	var k [2]uint32
	var value [64]byte
	all := m.Iterate()
	for all.Next(&k, &value) {
		if k[0] == nameFlow {
			text, _, _ := bytes.Cut(value[:], []byte{0})
			p.flows[uint8(k[1])] = string(text)
		}
	}
	return all.Err()
}

func (p *previousPins) ruleKey(id uint32) uint64 { return p.keys[id] }
func (p *previousPins) flowName(id uint8) string { return p.flows[id] }

// places returns how many entries the table has.
func (p *previousPins) places() int {
	return int(p.tags.Size()) / int(unsafe.Sizeof(uint64(0)))
}

// tagRun is the tags of some entries that follow one another.
type tagRun struct {
	first uint32 // place
	tags  []uint64
}

// tagsRead is how many tags are read at once.
const tagsRead = 4096

// allTags yields all tags of the table.
func (p *previousPins) allTags() iter.Seq2[tagRun, error] {
	return func(yield func(tagRun, error) bool) {
		tags := make([]uint64, tagsRead)
		for first := 0; first < p.places(); first += tagsRead {
			tags = tags[:min(tagsRead, p.places()-first)]
			_, err := p.tags.ReadAt(bytesOf(tags), int64(first)*int64(unsafe.Sizeof(tags[0])))
			if !yield(tagRun{uint32(first), tags}, err) || err != nil {
				return
			}
		}
	}
}

// read reads the live entry at a place, as its engine wrote it, and reports whether there is one.
func (p *previousPins) read(x *entry, place uint32) (bool, error) {
	n, way := int64(place/ways)*int64(unsafe.Sizeof(weirSet{})), int64(place%ways)
	before, err := p.tagAt(place)
	if err != nil || before&tagMask != tagLive {
		return false, err
	}
	x.place, x.tag = place, before
	if _, err = p.sets.ReadAt(bytesOf(x.addr[:]),
		n+way*int64(unsafe.Sizeof(x.addr))); err != nil {
		return false, err
	}
	if _, err = p.sets.ReadAt(bytesOf(x.sides[:]), n+int64(unsafe.Offsetof(weirSet{}.Side))+
		way*int64(unsafe.Sizeof(x.sides))); err != nil {
		return false, err
	}
	after, err := p.tagAt(place)
	return after == before, err
}

// at returns the live entry at a place, in this layout's terms, or nil.
func (p *previousPins) at(place uint32) (*entry, error) {
	if int(place) >= p.places() {
		return nil, nil
	}
	x := &entry{}
	if there, err := p.read(x, place); err != nil || !there {
		return nil, err
	}
	return p.renew(x), nil
}

// renew turns an entry into this layout's terms. It returns nil for one that has none.
func (p *previousPins) renew(x *entry) *entry {
	x.sides[0].Flags &^= metaHalfOpen
	if x.tag&tagHalfOpen != 0 {
		x.sides[0].Flags |= metaHalfOpen
	} else if !x.translation() &&
		(p.layout < firstProved || p.layout < firstProvedAll &&
			(uint8(x.tag>>24) != packet.ProtoTCP || x.sides[0].Flags&metaLoose != 0)) {
		x.originator().Flags |= sideProved
	}
	if p.layout < firstLinks && !x.nameQuery() {
		return nil
	}
	return x
}

// tagAt returns the tag of an entry.
func (p *previousPins) tagAt(place uint32) (uint64, error) {
	var tag [1]uint64
	_, err := p.tags.ReadAt(bytesOf(tag[:]), int64(place)*int64(unsafe.Sizeof(tag[0])))
	return tag[0], err
}

// nameQuery makes an ICMP state of a layout before firstLinks one of an echo request by its
// originator, as nearly all are. It reports false for one without an id.
func (x *entry) nameQuery() bool {
	k := x.key()
	query := uint16(0)
	switch four := k.Low().Addr().Is4(); {
	case four && k.Proto == packet.ProtoICMP:
		query = 8
	case !four && k.Proto == packet.ProtoICMPv6:
		query = 128
	default:
		return true
	}
	asks := uint16(k.Ports)
	low, high := asks, asks+query
	if x.originator() == &x.sides[1] {
		low, high = high, low
	}
	x.tag = x.tag&(1<<32-1) | uint64(low)<<48 | uint64(high)<<32
	return asks != 0
}

// counter returns what a rule had counted.
func (p *previousPins) counter(id uint32) (n weirCounter, err error) {
	var each []weirCounter
	if err := p.count.Lookup(id&0xffff, &each); err != nil {
		return n, err
	}
	for i := range each {
		n.Packets += each[i].Packets
		n.Bytes += each[i].Bytes
	}
	var base weirCounter
	if err := p.bases.Lookup(id&0xffff, &base); err != nil {
		return n, err
	}
	n.Packets -= base.Packets
	n.Bytes -= base.Bytes
	return n, nil
}

func (p *previousPins) close() error {
	var errs []error
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	p.maps = nil
	return errors.Join(errs...)
}

// translation reports that an entry is one of the two of a translation.
func (x *entry) translation() bool { return x.sides[0].Rule == natRule }

// connection reports that an entry is the state of a TCP connection.
func (x *entry) connection() bool {
	return uint8(x.tag>>24) == packet.ProtoTCP && !x.translation()
}

// renewTranslation turns the entries of a translation into those of this layout. Before firstPhase
// both counted as half-open, and each side had the flags of what it had sent. Which pod it counts
// for is not migrated.
func (p *previousPins) renewTranslation(wire, inner *entry) {
	phase := flow.Phase(inner.sides[1].Track & natPhase)
	if p.layout < firstPhase {
		a, b := flow.SideFlags(inner.sides[0].Flags), flow.SideFlags(inner.sides[1].Flags)
		switch {
		case (a|b)&flow.SideRst != 0:
			phase = flow.PhaseReset
		case a&b&flow.SideFin != 0:
			phase = flow.PhaseClosing
		case a&b&flow.SideSeen != 0:
			phase = flow.PhaseEstablished
		default:
			phase = flow.PhaseOpening
		}
	}
	last := max(inner.sides[0].Last, inner.sides[1].Last)
	kept := uint32(metaMade | metaWire | metaCross | metaSource)
	if p.layout >= firstRuled {
		kept |= metaNATRule
	}
	for _, x := range []*entry{wire, inner} {
		x.tag &^= tagHalfOpen
		for i := range x.sides {
			x.sides[i].Flags &= kept
			x.sides[i].Last, x.sides[i].Created = last, inner.sides[0].Created
		}
	}
	for i := range inner.sides {
		inner.sides[i].Flags |= metaLoose
	}
	inner.sides[1].Track = uint32(phase)
}

// originator returns the side that made the state.
func (x *entry) originator() *weirSide {
	if x.sides[1].Flags&metaMade != 0 {
		return &x.sides[1]
	}
	return &x.sides[0]
}

// call describes the entry for adoption, on a link if its key lacks the one that it needs.
func (x *entry) call(flow uint8, link uint32) weirCall {
	c := weirCall{Op: opAdopt, Side: x.sides}
	k := x.key()
	if link != 0 {
		k.SetLink(link)
	}
	c.Key.LowHi, c.Key.LowLo, c.Key.HighHi, c.Key.HighLo = k.LowHi, k.LowLo, k.HighHi, k.HighLo
	c.Key.Ports, c.Key.Proto, c.Key.Flow = k.Ports, uint8(k.Proto), flow
	return c
}

// setAside renames a directory of pins, so that it counts as that of another engine, and returns
// its new name.
func setAside(dir string) (to string, err error) {
	for n := 1; ; n++ {
		to = fmt.Sprintf("%s-%d", dir, n)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		return to, os.Rename(dir, to)
	}
}
