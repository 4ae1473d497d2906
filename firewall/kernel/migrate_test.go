package kernel

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// snapshot is an engine of a previous layout as it was released, with the rules webRules for a host
// 10.0.0.1 and fd00::1. It has the programs, and what the maps held, byte for byte.
type snapshot struct {
	Object []byte
	Maps   map[string][][2][]byte
	Image  [][]byte // rows of the image in force
}

// start pins the previous engine below dir and attaches it to an interface, as it did itself.
func (s *snapshot) start(dir string, index uint32) (err error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(s.Object))
	if err != nil {
		return err
	}
	config := s.Maps["config"][0][1]
	sets := uint32(config[8]) | uint32(config[9])<<8 | uint32(config[10])<<16 |
		uint32(config[11])<<24
	for name, m := range spec.Maps {
		if name == "states" || name == "tags" {
			m.MaxEntries = sets
		}
		if name == "tracks" {
			m.MaxEntries = uint32(config[12]) | uint32(config[13])<<8 | uint32(config[14])<<16
		}
	}
	all, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer all.Close()
	image, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(len(s.Image[0])), MaxEntries: uint32(len(s.Image)), Flags: innerMap})
	if err != nil {
		return err
	}
	defer image.Close()
	for i, row := range s.Image {
		if err := image.Put(uint32(i), row); err != nil {
			return err
		}
	}
	if err := all.Maps["images"].Put(uint32(config[4]), image); err != nil {
		return err
	}
	for name, pairs := range s.Maps {
		for _, p := range pairs {
			if err := all.Maps[name].Put(p[0], p[1]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, m := range all.Maps {
		if err := m.Pin(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for d, name := range []string{"weir_in", "weir_out"} {
		l, err := link.AttachTCX(link.TCXOptions{Interface: int(index), Program: all.Programs[name],
			Attach: directions[d].attach, Anchor: link.Head()})
		if err != nil {
			return err
		}
		if err := errors.Join(l.Pin(filepath.Join(dir,
			fmt.Sprintf("link-%d-%s", index, directions[d].name))), l.Close()); err != nil {
			return err
		}
	}
	return nil
}

func readSnapshot(t *testing.T, name string) *snapshot {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var s snapshot
	if err := gob.NewDecoder(z).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// stream is a connection through which bytes go round without an end.
type stream struct {
	net.Conn
	bytes atomic.Int64
	err   atomic.Pointer[error]
}

func newStream(t *testing.T, g *pairLab, to string) *stream {
	t.Helper()
	c, err := dialFrom(g.client, to, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{Conn: c}
	t.Cleanup(func() { c.Close() })
	go io.Copy(c, constant('x'))
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := c.Read(b)
			s.bytes.Add(int64(n))
			if err != nil {
				s.err.Store(&err)
				return
			}
		}
	}()
	return s
}

// flows waits until so many more bytes have come.
func (s *stream) flows(t *testing.T, what string, more int64) {
	t.Helper()
	want := s.bytes.Load() + more
	stop := time.Now().Add(testTimeout)
	for ; s.bytes.Load() < want; time.Sleep(time.Millisecond) {
		if err := s.err.Load(); err != nil {
			t.Fatalf("%s: the stream ended: %v", what, *err)
		}
		if time.Now().After(stop) {
			t.Fatalf(
				"%s: the stream stands still %d bytes before %d",
				what,
				want-s.bytes.Load(),
				want,
			)
		}
	}
}

// startPrevious has an engine of a previous layout guard the server, and removes what is left in
// the end.
func (g *pairLab) startPrevious(t *testing.T, layout string) (dir string) {
	t.Helper()
	s := readSnapshot(t, layout+".gob.gz")
	dir = filepath.Join(g.dir, layout)
	if err := g.server.Do(func() error { return s.start(dir, g.index) }); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := g.server.Do(func() error { return Remove(g.dir) }); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// closed makes sure that the server's port 81, which no rule opens, is closed.
func (g *pairLab) closed(t *testing.T, when string) {
	t.Helper()
	if c, err := g.connect("10.0.0.1:81"); err == nil {
		c.Close()
		t.Fatalf("%s: port 81 is open", when)
	}
}

// TestStatesOfPreviousLayout takes over from an engine of another layout, as it was released, while
// a stream goes through both.
func TestStatesOfPreviousLayout(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	g := joinPair(t, firewall.DefaultOptions())
	previous := g.startPrevious(t, "layout-3")
	g.closed(t, "under the previous engine")
	idle, err := g.dial("[fd00::1]:80")
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if err := echoWord(idle, "before"); err != nil {
		t.Fatal(err)
	}
	busy := newStream(t, g, "10.0.0.1:80")
	busy.flows(t, "under the previous engine", 50<<20)

	g.open(t)
	defer func() { g.engine.Close() }()
	if g.engine.TakenOver() {
		t.Error("took over pins of another layout")
	}
	g.interfaces(t)
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	if n := g.engine.Migrated(); n != 2 {
		t.Errorf("migrated %d states, there are 2", n)
	}
	busy.flows(t, "while the states are copied", 20<<20) // numbers grow far beyond what was copied
	g.attach(t)
	busy.flows(t, "under this engine", 50<<20)
	if err := echoWord(idle, "after"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(previous); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", previous, err)
	}
	checkMigrated(t, g)
	g.closed(t, "under this engine")
}

// checkMigrated wants both states of TestStatesOfPreviousLayout as they would be without a change
// of the engine. They count on from what the previous engine counted, and their numbers are checked
// as ever.
func checkMigrated(t *testing.T, g *pairLab) {
	t.Helper()
	states := g.states(t)
	if len(states) != 2 {
		t.Fatalf("states: %+v", states)
	}
	for _, st := range states {
		if st.Phase.String() != "established" || st.Rule != 101 ||
			st.From.Addr().Is4() && st.Bytes[1] < 100<<20 {
			t.Errorf("state %+v", st)
		}
	}
	for x, err := range g.engine.entries() {
		if err != nil {
			t.Fatal(err)
		}
		if x.sides[0].Flags&metaLiberal != 0 || x.sides[1].Flags&metaLiberal != 0 ||
			x.originator().Flags&sideProved == 0 {
			t.Errorf("flags %#x %#x", x.sides[0].Flags, x.sides[1].Flags)
		}
	}
	rules, err := g.engine.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if rules[1].Bytes < 200<<20 { // both directions
		t.Errorf("the rule counts %d bytes", rules[1].Bytes)
	}
}

// TestTablesOfAnotherSize gives the tables another size, upwards and down again, while a stream
// goes through; states and limits continue.
func TestTablesOfAnotherSize(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	most := o.MaxStates
	o.MaxStates /= 2
	const rules = "add 1 check-state\nadd allow tcp from any to me 80 setup limit src-addr 3\n"
	g := newPairLabWith(t, rules, o)
	busy := newStream(t, g, "10.0.0.1:80")
	var idle [2]net.Conn
	for i := range idle {
		c, err := g.dial("10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle[i] = c
	}
	limited := func(when string) {
		t.Helper()
		if c, err := g.connect("10.0.0.1:80"); err == nil {
			c.Close()
			t.Errorf("%s: a fourth connection of one source", when)
		}
	}
	limited("before")
	for _, states := range []int{most, entriesAtOnce} {
		when := fmt.Sprintf("with %d places for states", states)
		busy.flows(t, when, 20<<20)
		if err := g.engine.Close(); err != nil {
			t.Fatal(err)
		}
		g.options.MaxStates = states
		g.open(t)
		if g.engine.TakenOver() ||
			int(g.engine.objects.States.MaxEntries()) != int(setsFor(states)) {
			t.Fatalf("%s: the table has %d sets", when, g.engine.objects.States.MaxEntries())
		}
		g.interfaces(t)
		if err := g.engine.Load(compile(t, rules)); err != nil {
			t.Fatal(err)
		}
		g.attach(t)
		busy.flows(t, when, 20<<20)
		for _, c := range idle {
			if err := echoWord(c, when); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		limited(when)
		nstest.Eventually(t, when+": every connection is strict", g.strict)
		if n := g.engine.agreeTracks(t); n != 3 {
			t.Errorf("%s: tracks count %d states", when, n)
		}
		if dirs, _ := filepath.Glob(filepath.Join(g.dir, "*")); len(dirs) != 1 {
			t.Errorf("%s: pins %v", when, dirs)
		}
	}
	// A place that becomes free is free.
	idle[0].Close()
	nstest.Eventually(t, "another connection", func() bool {
		c, err := g.connect("10.0.0.1:80")
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// agreeTracks adds up what the tracks count.
func (e *Engine) agreeTracks(t *testing.T) (n int) {
	t.Helper()
	var s weirTrackSet
	for i := range e.config.TrackSets {
		if err := e.objects.Tracks.Lookup(i, &s); err != nil {
			t.Fatal(err)
		}
		for w := range s.Track {
			if s.Tag[w]&tagMask == tagLive {
				n += trackCount(s.Track[w].Held)
			}
		}
	}
	return n
}

// TestUnknownLayoutsAreNotRead leaves pins alone whose layout is newer, or whose maps are not what
// their layout says.
func TestUnknownLayoutsAreNotRead(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	dir := filepath.Join(nstest.Bpffs(t), "weir")
	e, err := openShared(t, Config{Dir: dir, Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if err := e.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	if n, err := e.Adopt(
		[]firewall.State{
			{
				Proto: 6,
				From:  netip.MustParseAddrPort("10.0.0.2:1"),
				To:    netip.MustParseAddrPort("10.0.0.1:80"),
				Key:   e.rules[1].Key,
			},
		},
	); n != 1 ||
		err != nil {
		t.Fatal(n, err)
	}
	config := e.config
	for _, number := range []uint32{0, 1, layout + 1, 1 << 31} {
		config.Layout = number
		if err := e.objects.Config.Put(uint32(0), &config); err != nil {
			t.Fatal(err)
		}
		if p, err := openPins(layoutDir(dir)); !errors.Is(err, errNotRead) || p != nil {
			t.Errorf("layout %d: %v, %v", number, p, err)
		}
	}
	config.Layout = layout
	if err := e.objects.Config.Put(uint32(0), &config); err != nil {
		t.Fatal(err)
	}
	p, err := openPins(layoutDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for place := range uint32(p.places()) {
		x, err := p.at(place)
		if err == nil && x == nil {
			continue
		}
		if err != nil || p.ruleKey(x.sides[0].Rule) != e.rules[1].Key ||
			p.flowName(uint8(x.tag>>16)) != "default" {
			t.Errorf("%+v: %v", x, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d states, there is one", found)
	}
	// A map of another shape under the name of one of ours.
	odd, err := ebpf.NewMap(
		&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 4, Flags: 1 << 10},
	)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(layoutDir(dir), "tags")
	if err := errors.Join(os.Remove(path), odd.Pin(path), odd.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := openPins(layoutDir(dir)); !errors.Is(err, errNotRead) {
		t.Errorf("tags of eight bytes: %v", err)
	}
	if err := errors.Join(p.close(), e.Close(), Remove(dir)); err != nil {
		t.Error(err)
	}
}

// TestLongStateThatFellBehindStaysLiberal merges copies into a state while a stream continues
// between them. The state becomes strict when it has missed nothing since the copy before, however
// far the stream has gone, and not sooner.
func TestLongStateThatFellBehindStaysLiberal(t *testing.T) {
	for _, gone := range []uint32{1, 1 << 20, 3 << 30} {
		e := newEngine(t)
		if err := e.Load(
			compile(t, "add allow tcp from any to any setup keep-state\n"),
		); err != nil {
			t.Fatal(err)
		}
		merge := func(what string, numbers uint32, want int64) {
			t.Helper()
			old := firewall.State{
				Proto: packet.ProtoTCP,
				From:  netip.MustParseAddrPort("10.0.0.2:1"),
				To:    netip.MustParseAddrPort("10.0.0.1:80"),
			}
			c := adoption(&old, e.rules[0].Id, 0, 1)
			for i := range c.Side {
				d := &c.Side[i]
				d.Flags = d.Flags&^metaLoose | uint32(flow.SideAcked)
				d.End, d.Ack, d.Edge, d.Bytes = numbers, numbers, numbers+1000, uint64(numbers)
			}
			c.Count = adoptMerge
			if err := e.call.ask(&c); err != nil {
				t.Fatal(err)
			}
			if c.Result != want {
				t.Errorf("%d on, %s: result %d, not %d", gone, what, c.Result, want)
			}
			for x, err := range e.entries() {
				if err != nil {
					t.Fatal(err)
				}
				for i, d := range x.sides {
					if liberal := want != 0; (d.Flags&metaLiberal != 0) != liberal ||
						d.End != numbers ||
						d.Ack != numbers ||
						d.Edge != numbers+1000 {
						t.Errorf("%d on, %s: side %d: %+v", gone, what, i, d)
					}
				}
			}
		}
		merge("made", 1000, adoptMade)
		merge("behind", 1000+gone, adoptBehind)
		merge("up to it", 1000+gone, 0)
	}
}
