package kernel

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// features is what this engine has of the language: all of it.
const features = program.AllFeatures

// innerMap is BPF_F_INNER_MAP: images differ in size.
const innerMap = 1 << 12

// graceSlot is a slot of the images that no packet reads: setting it makes the kernel wait for the
// packets that are on their way.
const graceSlot = 2

// Load replaces the Program, see firewall.Engine.
func (e *Engine) Load(p *program.Program) error { return e.Replace(p, nil) }

// Replace replaces the Program and some tables, see firewall.Engine. Packets are evaluated by the
// old ones until a single word changes. The first Load takes over what an earlier engine has left:
// an error leaves that in force, whole.
func (e *Engine) Replace(p *program.Program, tables map[string][]rule.TableEntry) error {
	if err := p.Check(); err != nil {
		return err
	}
	if err := p.Lacks(features); err != nil {
		return err
	}
	for name, members := range tables {
		if err := checkMembers(name, members); err != nil {
			return err
		}
	}
	if done, err := e.replaceFirst(p, tables); done {
		return err
	}
	t, err := laterTables(p, tables)
	if err != nil {
		return errors.Join(err, t.close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	serial := e.serial
	if err = e.enterLocked(t, p, tables); err == nil {
		err = e.switchLocked(p, t)
	}
	if err != nil && e.serial == serial { // the old rules are in force
		return errors.Join(err, e.undoTablesLocked(t))
	}
	return err
}

// switchLocked puts a Program in force with the tables that come with it; the first one with all
// that an earlier engine has left.
func (e *Engine) switchLocked(p *program.Program, t *nextTables) error {
	in, fresh, err := e.prepareLocked(p, t)
	if err != nil {
		return err
	}
	im, err := newImage(in)
	if err != nil {
		return err
	}
	m, err := e.imageMapLocked(im)
	if err != nil {
		return err
	}
	defer e.closeUnusedLocked(m)
	if err := e.resetCountersLocked(fresh); err != nil {
		return err
	}
	if err := e.fillRatesLocked(p, fresh, in); err != nil {
		return err
	}
	if err := e.putInterfacesLocked(e.ifs, p, in.parity, 1<<in.parity); err != nil {
		return err
	}
	before := e.placeLocked
	if t.first {
		before = e.beforeFirstLocked
	}
	if err := before(t); err != nil {
		return err
	}
	next, err := e.beginNATEntriesLocked(p)
	if err != nil {
		return errors.Join(err, e.putNATEntriesLocked(e.natEntries))
	}
	waited := e.publishLocked(m, im, in, p)
	if waited != nil && e.config.Current&currentSlot != in.parity {
		return errors.Join(waited, e.putNATEntriesLocked(e.natEntries))
	}
	old := e.rules
	e.ids.take(owners(p), slices.Concat(in.ids, in.pipes))
	e.prog, e.serial = p, in.serial
	e.rules = im.codes
	e.unpurged = e.unpurged || t.first || e.ids.lack(old)
	e.takeImageLocked(m, waited == nil)
	if waited != nil { // packets of the old rules may be on their way: their tables stay
		t.old = nil
		return errors.Join(waited, e.takeTablesLocked(t))
	}
	err = errors.Join(e.takeTablesLocked(t), e.endNATEntriesLocked(next), e.forgetHopsLocked(p))
	if e.idle > 0 {
		err = errors.Join(err, e.dropIdleLocked())
	}
	e.unnamed = true
	if bad := e.purgeLocked(); bad != nil {
		err = errors.Join(err, fmt.Errorf("the rules are in force, but states of old rules may "+
			"still be there: %w", bad))
	}
	return errors.Join(err, e.forgetNamesLocked(p), e.migrateAllLocked())
}

// prepareLocked gives the Program's names their lasting ids. fresh are the ids of rules that were
// not there before.
func (e *Engine) prepareLocked(p *program.Program, t *nextTables) (in imageInput, fresh []uint32,
	err error) {
	in = imageInput{prog: p, serial: e.serial + 1, parity: e.slot() ^ 1}
	all, fresh, err := e.ids.assign(owners(p))
	if err != nil {
		return in, nil, err
	}
	in.ids, in.pipes = all[:len(p.Rules)], all[len(p.Rules):]
	if err := e.haveFlowNamesLocked(p); err != nil {
		return in, nil, err
	}
	for _, name := range p.Flows {
		id, err := e.nameIDs.id(nameFlow, name)
		if err != nil {
			return in, nil, err
		}
		in.flows = append(in.flows, uint8(id))
	}
	for _, name := range p.Tables {
		if id, comes := t.id(name); comes {
			in.tables = append(in.tables, id)
			continue
		}
		id, there := e.nameIDs.ids[nameTable][name]
		if !there {
			return in, nil, fmt.Errorf("table %s has no place", name)
		}
		in.tables = append(in.tables, id)
	}
	return in, fresh, nil
}

// publishLocked makes an image the one in force.
func (e *Engine) publishLocked(m *ebpf.Map, im *image, in imageInput, p *program.Program) error {
	slot := in.parity
	if err := e.objects.Images.Put(slot, m); err != nil {
		return fmt.Errorf("put the rules in place: %w", err)
	}
	random := bit(hasProb(p))
	config := e.config
	config.Current, config.Random =
		im.header.Reads<<currentReads|im.header.FastFlow<<currentFastFlow|slot,
		e.config.Random|random
	config.Epoch++
	if err := e.objects.Config.Put(uint32(0), &config); err != nil {
		return fmt.Errorf("switch to the rules: %w", err)
	}
	e.config, e.switched = config, true
	// From here on the new rules are in force. Wait for packets that began under the old ones.
	if err := e.waitForPackets(m); err != nil {
		return fmt.Errorf("wait for the last packets of the old rules: %w", err)
	}
	e.config.Random = random
	return e.putConfigLocked()
}

// waitForPackets returns when all packets that were on their way have left the programs, those of
// other engines, too. m is any image.
func (e *Engine) waitForPackets(m *ebpf.Map) error {
	return e.objects.Images.Put(uint32(graceSlot), m)
}

func hasProb(p *program.Program) bool {
	for i := range p.Rules {
		if p.Rules[i].Prob != 0 {
			return true
		}
	}
	return false
}

// resume reads what is in force from the maps that were taken over.
func (e *Engine) resume() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.imageLocked()
	if err != nil || m == nil {
		return err
	}
	defer m.Close()
	row := make([]byte, rowSize)
	if err := m.Lookup(uint32(0), row); err != nil {
		return fmt.Errorf("read the rules in force: %w", err)
	}
	h := *(*weirHeader)(unsafe.Pointer(&row[0]))
	e.serial = h.Serial
	e.rules = make([]weirCode, 0, h.Rules)
	for at := uint32(firstCodes); len(e.rules) < int(h.Rules); at++ {
		if err := m.Lookup(at, row); err != nil {
			return fmt.Errorf("read the rules in force: %w", err)
		}
		all := unsafe.Slice((*weirCode)(unsafe.Pointer(&row[0])),
			rowSize/int(unsafe.Sizeof(weirCode{})))
		e.rules = append(e.rules, all[:min(len(all), int(h.Rules)-len(e.rules))]...)
	}
	for i := range e.rules {
		e.ids.adopt(e.rules[i].Key, e.rules[i].Id)
	}
	for i := range h.Npipes {
		if i%rowPipes == 0 {
			if err := m.Lookup(h.Pipes+i/rowPipes, row); err != nil {
				return fmt.Errorf("read the pipes in force: %w", err)
			}
		}
		x := unsafe.Slice((*weirPipe)(unsafe.Pointer(&row[0])), rowPipes)[i%rowPipes]
		e.ids.adopt(x.Key, x.Id)
	}
	e.ids.skip(uint16(h.Serial))
	return nil
}

// slot returns where the image in force lies.
func (e *Engine) slot() uint32 { return e.config.Current & currentSlot }

// imageLocked opens the image in force, nil if there is none.
func (e *Engine) imageLocked() (*ebpf.Map, error) {
	var m *ebpf.Map
	err := e.objects.Images.Lookup(e.slot(), &m)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the rules in force: %w", err)
	}
	return m, nil
}

// purgeSets is how many sets of states one run of a program visits. A run is not interrupted by
// softirqs, so packets wait meanwhile: hardly 200 microseconds, if all states go.
const purgeSets = 64

// purgeLocked removes every state whose rule is gone, if any may be there: it visits the whole
// table.
func (e *Engine) purgeLocked() error {
	if !e.unpurged {
		return nil
	}
	for set := uint32(0); set < e.config.Sets; set += purgeSets {
		if err := e.call.ask(&weirCall{Op: opPurge, Now: e.now(), Place: set,
			Count: purgeSets}); err != nil {
			return err
		}
	}
	e.unpurged = false
	return nil
}
