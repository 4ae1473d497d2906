package kernel

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Config is the configuration of an engine.
type Config struct {
	// Dir is a directory on a bpf file system where everything is pinned. Empty: nothing is pinned,
	// and enforcement ends with Close.
	Dir     string
	Options firewall.Options
	// NoRedirectPeer hands packets to pods by bpf_redirect, through the host end's queue, where
	// bpf_redirect_peer would go straight inside: to compare the two.
	NoRedirectPeer bool
}

// Engine is the kernel's engine. It implements firewall.Engine. Its methods may be called from any
// goroutine; there must be one Engine per Dir at a time.
type Engine struct {
	dir       string // "" when nothing is pinned
	options   firewall.Options
	objects   weirObjects
	takenOver bool
	// the pins in dir have tables of other sizes, or are not all there: they are set aside like
	// those of a previous layout
	resized   bool
	reused    bool   // the programs are those that were pinned
	pinned    bool   // guarded by mu; the programs are pinned
	switched  bool   // guarded by mu; rules of this engine are in force
	guarded   bool   // the engine that was taken over was attached somewhere
	noPeer    bool   // Config.NoRedirectPeer
	noCookies string // why there are no SYN cookies, "" if there are

	mu      sync.Mutex
	config  weirConfig       // guarded by mu; what the kernel's map says
	ids     *ids             // guarded by mu
	nameIDs *nameIDs         // guarded by mu
	prog    *program.Program // guarded by mu; nil until Load
	rules   []weirCode       // guarded by mu; of the image in force, by slot
	// guarded by mu; slots of rules by id, of the rules that begin at slotsOf
	slotByID map[uint32]int
	slotsOf  *weirCode // guarded by mu
	serial   uint32    // guarded by mu
	// guarded by mu; the image in force and the one before it, which no packet reads; nil if they
	// are not known
	image, spare *ebpf.Map
	unpurged     bool // guarded by mu; states of rules that are gone may be there
	// guarded by mu; bit per kind of event that Watch reports
	kinds      uint32
	watched    bool // guarded by mu; there is a Watch
	watchEnded bool // guarded by mu; a Watch has ended, and no other has begun
	// guarded by mu; receives captured frames, nil without a capture
	capture func(*firewall.Captured)
	tables  map[string]*ebpf.Map   // guarded by mu
	ifs     []firewall.Interface   // guarded by mu; in order of index
	synced  bool                   // guarded by mu; ifs is what the kernel has
	routes  *[]firewall.Route      // guarded by mu; set before the first Load, nil for none
	links   map[uint32]*attachment // guarded by mu; by interface index
	// guarded by mu; pinned, but their interfaces are gone
	defunct []*attachment
	// guarded by mu; tables that may be empty since some were removed last
	idle int
	// guarded by mu; since then rules were replaced, which may have been the last to name some
	unnamed bool
	// guarded by mu; tables set before the first Load, nil after it
	staged  map[string][]rule.TableEntry
	noTCX   bool // guarded by mu; the kernel is older than tcx
	ticking bool // guarded by mu; the sweep's timer runs

	programIDs programIDs // guarded by mu; of the programs that are in filters

	// guarded by mu; another engine's pins, until all interfaces have changed hands
	previous *previous
	migrated int                            // guarded by mu; states that came from there
	networks map[weirTableKey]weirConnected // guarded by mu; what is in the map, nil for anything

	addresses map[weirIfaceAddress]uint32 // guarded by mu; what is in the map, nil for anything

	forwarding weirForwarding          // guarded by mu; what is in the map
	endpoints  map[uint32]weirEndpoint // guarded by mu; by the index of the host end
	undeleted  map[uint32]weirEndpoint // guarded by mu; as endpoints; their states are being ended
	queued     map[uint32]bool         // interfaces with queueing disciplines: SetQdiscLinks
	policies   []Policy                // guarded by mu; SetStack
	asked      []Policy                // guarded by mu; those of the map in force, nil for any
	routing    bool                    // guarded by mu; SetStack
	stackKnown bool                    // guarded by mu; until then what is in the map stays
	places     [maxPods]bool           // guarded by mu; in which a pod counts
	// guarded by mu; what is in the map, by interface index
	nics map[uint32]weirNic
	// guarded by mu; what is in the map, nil for anything
	published   map[weirPublishedKey]weirPublished
	withdrawals withdrawals // guarded by mu
	// guarded by mu; what rules with nat ask for, whether it is known, and what was written last
	natEntries, natEntriesPut natEntries
	natEntriesKnown           bool
	natEntriesHeld            error // what an instance of nat could not have, nil if nothing
	// guarded by mu; what is in the map, nil for anything
	masked map[weirTableKey]weirMaskedSource
	// guarded by mu; what is in the maps, nil for anything; trials by place
	services map[weirPublishedKey]*weirService
	trials   map[uint32]uint64
	turns    map[weirPublishedKey]uint64 // guarded by mu; as they were set last
	// guarded by mu; on the loopback, nil while no port of a pod is published
	local *local

	hops       bool      // guarded by mu; some are in the map that this engine wrote
	stagedHops []NextHop // guarded by mu; set before the first Load

	nft        sync.Mutex // no other is taken with it
	withoutNFT time.Time  // guarded by nft; when the kernel had no nftables, zero if it has

	uppers []Upper // guarded by mu
	// guarded by mu; what is in the map, nil for anything
	uppersPut map[weirUpperKey]uint32

	clock func() int64 // stands for the clock in tests; nil otherwise
	// stands for load in tests, when needLocked loads; nil otherwise
	loadMore func(*ebpf.CollectionSpec, map[string]**ebpf.Program) error
	call     testRunBuffer
	close    sync.Once
}

var _ firewall.Engine = (*Engine)(nil)

// layoutDir is where the pins of this layout lie below Config.Dir.
func layoutDir(dir string) string { return filepath.Join(dir, fmt.Sprintf("layout-%d", layout)) }

// Open loads the programs and makes or takes over the maps. It changes nothing: what an earlier
// engine has pinned stays in force until the first Load, which takes over all of it at once or,
// when it fails, nothing. Interfaces, routes, next hops and tables that are set before come into
// force with that Load.
func Open(c Config) (*Engine, error) { return openWith(c, (*Engine).loadPrograms) }

// openWith is Open with the function that makes the maps and loads the programs: tests have one
// that verifies them once for many engines.
func openWith(c Config, load loader) (*Engine, error) {
	if err := checkOptions(&c.Options); err != nil {
		return nil, err
	}
	e := &Engine{
		options: c.Options, ids: newIDs(), tables: map[string]*ebpf.Map{},
		links: map[uint32]*attachment{}, undeleted: map[uint32]weirEndpoint{},
		noPeer: c.NoRedirectPeer, staged: map[string][]rule.TableEntry{},
		programIDs: programIDs{},
	}
	if c.Dir != "" {
		e.dir = layoutDir(c.Dir)
	}
	if err := e.open(load); err != nil {
		return nil, errors.Join(err, e.release())
	}
	return e, nil
}

func checkOptions(o *firewall.Options) error {
	switch {
	case o.MaxStates < 1 || o.MaxStates > 1<<27:
		return fmt.Errorf("%d states: from 1 to %d are possible", o.MaxStates, 1<<27)
	case o.MaxHalfOpen < 1 || o.MaxHalfOpen > 1<<24:
		return fmt.Errorf("%d half-open states: from 1 to %d are possible", o.MaxHalfOpen, 1<<24)
	case o.MaxPerSource < 0:
		return fmt.Errorf("%d half-open states of one source: 0 means any number", o.MaxPerSource)
	case o.MaxTranslations < 0 || o.MaxPodTranslations < 0 || o.MaxTranslations > o.MaxStates/3:
		return fmt.Errorf("%d translations, %d of a pod: a translated flow takes three places of "+
			"the %d", o.MaxTranslations, o.MaxPodTranslations, o.MaxStates)
	case o.MaxTracks < 1 || o.MaxTracks > 1<<22:
		return fmt.Errorf("%d tracks: from 1 to %d are possible", o.MaxTracks, 1<<22)
	}
	return nil
}

// open fills a new Engine. What was acquired is given back by release when it fails.
func (e *Engine) open(load loader) error {
	spec, err := readPrograms()
	if err != nil {
		return err
	}
	e.size(spec)
	if e.resized, err = e.isResized(); err != nil {
		return err
	}
	old, err := e.pinnedMaps(spec)
	if err != nil {
		return err
	}
	defer old.close()
	e.takenOver = len(old) > 0
	if err := load(e, spec, old); err != nil {
		return loadError(err)
	}
	e.nameIDs, err = readNameIDs(e.objects.NameIds)
	if err != nil {
		return err
	}
	if err := e.call.open(e.objects.Calls, e.objects.WeirCall, e.objects.WeirTick); err != nil {
		return err
	}
	if e.previous, err = e.findPrevious(); err != nil {
		return err
	}
	if err := e.configure(); err != nil {
		return err
	}
	if err := e.setClock(); err != nil {
		return err
	}
	if err := e.readForwarding(); err != nil || !e.takenOver {
		return err
	}
	if err := e.resume(); err != nil {
		return err
	}
	return e.openLinks()
}

// loadError adds what usually helps.
func loadError(err error) error {
	var ve *ebpf.VerifierError
	switch {
	case fewDescriptors(err):
		return fmt.Errorf("load the eBPF programs: %w (raise the limit of open files: ulimit -n)",
			err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("load the eBPF programs: %w (run as root)", err)
	case errors.As(err, &ve):
		return fmt.Errorf("load the eBPF programs: the kernel's verifier refuses them: %w", err)
	}
	return fmt.Errorf("load the eBPF programs: %w", err)
}

// size sets the sizes of the maps. The state table has a tenth more places than states, so that a
// full set is rare before all are used.
func (e *Engine) size(spec *ebpf.CollectionSpec) {
	spec.Maps["states"].MaxEntries = setsFor(e.options.MaxStates)
	spec.Maps["tags"].MaxEntries = spec.Maps["states"].MaxEntries
	spec.Maps["sweep_hints"].MaxEntries = spec.Maps["states"].MaxEntries
	spec.Maps["tracks"].MaxEntries = setsFor(e.options.MaxTracks)
	cells := sourceCells(e.options.MaxHalfOpen)
	spec.Maps["sources"].MaxEntries = cells / sourceLine
	spec.Maps["source_ring"].MaxEntries = cells
	for _, name := range []string{"frags", "refused_frags", "nat_frags"} {
		m := spec.Maps[name]
		m.MaxEntries = lruEntries(m.MaxEntries, ebpf.MustPossibleCPU())
	}
}

// lruEntries returns the size of an LRU map that holds entries. Before Linux 6.16 each CPU may keep
// 128 free entries for itself (LOCAL_FREE_TARGET of kernel/bpf/bpf_lru_list.c). With many CPUs
// nothing would be left, and each new entry would evict one that is in use.
func lruEntries(entries uint32, cpus int) uint32 { return max(entries, uint32(256*cpus)) }

// sourceLine is SOURCE_LINE of bpf/lib/half_open_source.h: how many counters of half-open states
// lie in one element of their map.
const sourceLine = 16

// sourceCells returns how many counters of half-open states of sources there are: two for each such
// state, a power of two.
func sourceCells(halfOpen int) uint32 {
	return uint32(1) << bits.Len(uint(max(2*halfOpen, 1024)-1))
}

// sourceFew is up to which limit of half-open states of one source all of them are recorded. Of
// larger limits it is half, rounded up: an address of the host itself is refused at half the limit.
const sourceFew = 16

// limitSources sets how many half-open states one source may have, 0 for any number.
func (c *weirConfig) limitSources(most int) {
	c.MaxSource = uint32(most)
	c.SourceFrom, c.SourceTurns = 0, uint32(most)
	switch {
	case most == 0:
		c.SourceFrom = math.MaxUint32
	case most > sourceFew:
		c.SourceTurns = uint32(most - most/2)
		c.SourceFrom = c.MaxSource - c.SourceTurns
	}
}

func setsFor(n int) uint32 {
	return uint32(max(2, (n+n/9+ways-1)/ways))
}

// configure sets what the options say. A table that was taken over keeps its secret and its size.
func (e *Engine) configure() error {
	if err := e.objects.Config.Lookup(uint32(0), &e.config); err != nil {
		return fmt.Errorf("read the settings in the kernel: %w", err)
	}
	c, o := &e.config, &e.options
	if !e.takenOver {
		if err := e.chooseSecrets(c); err != nil {
			return err
		}
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if c.Cookies, e.noCookies, err = cookieUses(c.Cookies); err != nil {
		return err
	}
	if o.NoCookies { // those that were sent before are redeemed as they were made
		c.Cookies, e.noCookies = c.Cookies&^cookieUse, "[states] syn_cookies is false"
	}
	c.Layout = layout
	c.Sets, c.TrackSets = e.objects.States.MaxEntries(), e.objects.Tracks.MaxEntries()
	c.RateSets = e.objects.Rates.MaxEntries()
	c.MaxStates, c.MaxHalfOpen = uint32(o.MaxStates), uint32(o.MaxHalfOpen)
	c.limitSources(o.MaxPerSource)
	c.SourceMask, c.RingMask = e.objects.Sources.MaxEntries()*sourceLine-1,
		e.objects.SourceRing.MaxEntries()-1
	nats, podNats := o.Translations()
	c.MaxNats, c.MaxPodNats = uint32(nats), uint32(podNats)
	c.Batch = uint32(max(1, o.MaxStates/20/cpus))
	c.Liberal, c.NoEssential, c.NoDhcp = bit(o.Liberal), bit(o.NoEssential), bit(o.NoDHCP)
	t := o.Timeouts
	c.LifeSyn, c.LifeEstablished, c.LifeFin, c.LifeRst = int64(t.Syn), int64(t.Established),
		int64(t.Fin), int64(t.Rst)
	c.LifeUdp, c.LifeUdpReply, c.LifeShort = int64(t.UDP), int64(t.UDPReply), int64(t.Short)
	c.LifeFrag = fragLife
	// store_release in bpf/lib/kernel.h explains why the loader has to set it
	c.InOrder = bit(runtime.GOARCH == "amd64")
	c.Holding = 0          // the engine before may have died
	c.Listen &= eventKinds // what the engine before reported waits in the ring for our Watch
	// the engine before may have died between a change and the new epoch
	c.Epoch++
	return e.putConfigLocked()
}

// chooseSecrets sets the keys of the hashes and the mark of new maps: those of the engine before,
// if it has them.
func (e *Engine) chooseSecrets(c *weirConfig) error {
	if err := randomize(c.Seed[:]); err != nil {
		return err
	}
	mark := [1]uint64{}
	if err := randomize(mark[:]); err != nil {
		return err
	}
	// nonzero also without its lowest bit, which separates its two kinds
	c.LocalMark = uint32(mark[0]) | 1<<31 | 1
	if e.previous != nil && e.previous.pins.seed != nil {
		c.Seed, c.LocalMark = *e.previous.pins.seed, e.previous.pins.mark|1<<31|1
	}
	return nil
}

// fewDescriptors reports whether this process, or the system, may open no more files.
func fewDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// fragLife is how long a first fragment is kept, ns.
const fragLife = 30e9

// putConfigLocked writes the settings. The sweep's correction of the clock stays.
func (e *Engine) putConfigLocked() error {
	var there weirConfig
	if err := e.objects.Config.Lookup(uint32(0), &there); err != nil {
		return fmt.Errorf("read the settings in the kernel: %w", err)
	}
	e.config.Clock = there.Clock
	return e.writeConfigLocked()
}

// writeConfigLocked writes the settings. Those of an earlier engine stay until the first Load: see
// publishLocked.
func (e *Engine) writeConfigLocked() error {
	if e.pending() {
		return nil
	}
	if err := e.objects.Config.Put(uint32(0), &e.config); err != nil {
		return fmt.Errorf("write the settings to the kernel: %w", err)
	}
	return nil
}

// changedLocked follows a change of something that rules ask about, a table or a fact about the
// host: it invalidates the verdict caches. It follows the change, also one that failed halfway.
func (e *Engine) changedLocked() error {
	e.config.Epoch++
	return e.putConfigLocked()
}

func randomize(words []uint64) error {
	_, err := rand.Read(bytesOf(words))
	return err
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// pending reports whether an earlier engine's rules are in force, unchanged.
func (e *Engine) pending() bool { return e.takenOver && !e.switched }

// TakenOver reports whether Open found the maps of an earlier engine and uses them.
func (e *Engine) TakenOver() bool { return e.takenOver }

// Close releases what this process holds. Pinned programs continue to evaluate packets.
func (e *Engine) Close() (err error) {
	e.close.Do(func() { err = e.release() })
	return err
}

func (e *Engine) release() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, a := range e.links {
		if e.dir == "" {
			errs = append(errs, e.detach(a))
		} else {
			errs = append(errs, a.close(false))
		}
	}
	clear(e.links)
	for _, a := range e.defunct {
		errs = append(errs, a.close(false))
	}
	e.defunct = nil
	errs = append(errs, e.releaseLocalLocked())
	if e.previous != nil {
		errs = append(errs, e.previous.pins.close())
		e.previous = nil
	}
	for _, m := range e.tables {
		errs = append(errs, m.Close())
	}
	clear(e.tables)
	for _, m := range []*ebpf.Map{e.image, e.spare} {
		errs = append(errs, m.Close()) // nil is fine
	}
	e.image, e.spare = nil, nil
	if e.objects.Config != nil {
		errs = append(errs, e.objects.Close())
	}
	return errors.Join(errs...)
}
