package agent

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/nat"
	"github.com/weirnet/weir/agent/peers"
	"github.com/weirnet/weir/agent/pods"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/agent/watch"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/configfile"
	"github.com/weirnet/weir/internal/similar"
)

// Settings is the content of weir.toml. Every one has a default, so that the file may be missing.
type Settings struct {
	// Host configures which interfaces are guarded.
	Host host.Settings
	// Engine are the sizes, lifetimes and strictness of the engine.
	Engine firewall.Options
	// Watch configures how the node is watched.
	Watch watch.Settings
	// LogJSON makes the agent's own log JSON lines.
	LogJSON bool
	// Rules configures what the rules are when none can be used.
	Rules rules.Settings
	// Pods configures the network of containers.
	Pods pods.Settings
	// Overlay is the tunnel to other nodes.
	Overlay peers.Settings
	// NAT is what the host translates for others behind it.
	NAT nat.Settings
}

// DefaultSettings guard every interface but the loopback.
func DefaultSettings() Settings {
	return Settings{Host: host.DefaultSettings(), Engine: firewall.DefaultOptions(),
		Watch: watch.DefaultSettings(), Rules: rules.DefaultSettings(),
		Pods: pods.DefaultSettings(), Overlay: peers.DefaultSettings()}
}

// settingsFile is weir.toml as it is written. Pointers are nil for what was not set.
type settingsFile struct {
	Interfaces []string   `toml:"interfaces"`
	Essential  *bool      `toml:"essential"`
	DHCP       *bool      `toml:"dhcp"`
	Log        string     `toml:"log"`
	LockDown   rules.File `toml:"lock_down"`
	Observe    watch.File `toml:"observe"`
	States     struct {
		Max             *int  `toml:"max"`
		HalfOpen        *int  `toml:"half_open"`
		PerSource       *int  `toml:"per_source"`
		Tracks          *int  `toml:"tracks"`
		Translations    *int  `toml:"translations"`
		PodTranslations *int  `toml:"pod_translations"`
		Liberal         *bool `toml:"liberal"`
		Cookies         *bool `toml:"syn_cookies"`
	} `toml:"states"`
	Pods       pods.File            `toml:"pods"`
	Forward    []nat.ForwardFile    `toml:"forward"`
	Masquerade []nat.MasqueradeFile `toml:"masquerade"`
	Binat      []nat.BinatFile      `toml:"binat"`
	Overlay    *peers.File          `toml:"overlay"`
	Timeouts   struct {
		Syn         any `toml:"syn"`
		Established any `toml:"established"`
		Fin         any `toml:"fin"`
		Rst         any `toml:"rst"`
		UDP         any `toml:"udp"`
		UDPReply    any `toml:"udp_reply"`
		Short       any `toml:"short"`
	} `toml:"timeouts"`
}

// lifetime reads a number of seconds, as ipfw has it, or a duration like "5m".
func lifetime(v any) (d time.Duration, err error) {
	switch v := v.(type) {
	case int64:
		if v > 1<<31 {
			return 0, fmt.Errorf("%d seconds are too many", v)
		}
		d = time.Duration(v) * time.Second
	case string:
		if d, err = time.ParseDuration(v); err != nil {
			return 0, fmt.Errorf(`%q is not a lifetime; write seconds (20) or a duration ("5m")`, v)
		}
	default:
		return 0, fmt.Errorf(`not a lifetime; write seconds (20) or a duration ("5m")`)
	}
	if d < 100*time.Millisecond || d > 30*24*time.Hour {
		return 0, fmt.Errorf("a lifetime lies between 100ms and 720h, not %v", d)
	}
	return d, nil
}

// ReadSettings reads a settings file. Unknown keys and values out of range are refused, naming the
// place.
func ReadSettings(file string) (Settings, error) {
	text, err := configfile.Read(file)
	if err != nil {
		return Settings{}, err
	}
	var f settingsFile
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return Settings{}, fmt.Errorf("%s%w", file, placed(err))
	}
	s, err := f.settings()
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// placed is an error of the decoder behind its place, ":LINE:COLUMN: ".
func placed(err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		first := &unknown.Errors[0]
		line, column := first.Position()
		return fmt.Errorf(":%d:%d: %w", line, column, errUnknown{first.Key()})
	}
	var wrong *toml.DecodeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf(": %w", err)
	}
	line, column := wrong.Position()
	what := strings.TrimPrefix(wrong.Error(), "toml: ")
	if kind, ok := strings.CutPrefix(what, "cannot decode TOML "); ok {
		kind, _, _ = strings.Cut(kind, " into ") // a Go type
		what = fmt.Sprintf("unexpected %s; weir.toml(5) shows what is expected", kind)
	}
	if key := strings.Join(wrong.Key(), "."); key != "" {
		what = key + ": " + what
	}
	return fmt.Errorf(":%d:%d: %s", line, column, what)
}

// errUnknown is a key that is not a setting.
type errUnknown struct{ key []string }

func (e errUnknown) Error() string {
	return fmt.Sprintf("unknown setting %q", strings.Join(e.key, "."))
}

// Hint returns the setting that was meant, if one is close, and where all are listed. Other nodes
// are none: wg-quick has them in its file.
func (e errUnknown) Hint() string {
	for _, word := range e.key {
		switch strings.ToLower(word) {
		case "peer", "peers", "endpoint", "endpoints":
			return "other nodes are not settings: weir peer add NAME --key KEY --pods RANGE " +
				"--endpoint HOST:51820"
		}
	}
	const all = "weir.toml(5) lists all settings"
	if meant := nearest(e.key); meant != "" {
		return fmt.Sprintf("did you mean %q? %s", meant, all)
	}
	return all
}

// nearest is the setting that an unknown one was meant to be, "" if none is close.
func nearest(key []string) string {
	table := reflect.TypeFor[settingsFile]()
	for i, word := range key {
		fields := map[string]reflect.Type{}
		for field := range table.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
			fields[name] = field.Type
		}
		inner, known := fields[word]
		if !known {
			meant := similar.Word(word, slices.Sorted(maps.Keys(fields))...)
			if meant == "" {
				return ""
			}
			return strings.Join(append(slices.Clone(key[:i]), meant), ".")
		}
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if table = inner; table.Kind() != reflect.Struct {
			return ""
		}
	}
	return ""
}

// settings applies the file to the defaults.
func (f settingsFile) settings() (Settings, error) {
	s := DefaultSettings()
	if f.Interfaces != nil {
		s.Host.Interfaces = f.Interfaces
	}
	if err := host.CheckInterfaces(s.Host.Interfaces); err != nil {
		return s, err
	}
	switch f.Log {
	case "", "text":
	case "json":
		s.LogJSON = true
	default:
		return s, fmt.Errorf(`log: %q is neither "text" nor "json"`, f.Log)
	}
	if err := f.LockDown.Apply(&s.Rules); err != nil {
		return s, err
	}
	if err := f.Observe.Apply(&s.Watch); err != nil {
		return s, err
	}
	if f.Essential != nil {
		s.Engine.NoEssential = !*f.Essential
	}
	if f.DHCP != nil {
		s.Engine.NoDHCP = !*f.DHCP
	}
	if f.States.Liberal != nil {
		s.Engine.Liberal = *f.States.Liberal
	}
	if f.States.Cookies != nil {
		s.Engine.NoCookies = !*f.States.Cookies
	}
	for _, n := range []struct {
		key   string
		value *int
		to    *int
		max   int
	}{
		{"states.max", f.States.Max, &s.Engine.MaxStates, 1 << 26},
		{"states.half_open", f.States.HalfOpen, &s.Engine.MaxHalfOpen, 1 << 24},
		{"states.tracks", f.States.Tracks, &s.Engine.MaxTracks, 1 << 24},
		{"states.translations", f.States.Translations, &s.Engine.MaxTranslations, 1 << 24},
		{"states.pod_translations", f.States.PodTranslations, &s.Engine.MaxPodTranslations,
			1 << 24},
	} {
		if n.value == nil {
			continue
		}
		if *n.value < 1 || *n.value > n.max {
			return s, fmt.Errorf("%s: %d is not between 1 and %d", n.key, *n.value, n.max)
		}
		*n.to = *n.value
	}
	s.Engine.MaxPerSource = max(leastPerSource, s.Engine.MaxHalfOpen/4)
	if n := f.States.PerSource; n != nil {
		if *n != 0 && (*n < leastPerSource || *n > 1<<24) {
			return s, fmt.Errorf("states.per_source: %d is neither 0, for any number, nor between "+
				"%d and %d", *n, leastPerSource, 1<<24)
		}
		s.Engine.MaxPerSource = *n
	}
	if err := checkTranslations(&s.Engine); err != nil {
		return s, err
	}
	if err := f.Pods.Apply(&s.Pods); err != nil {
		return s, err
	}
	if err := f.Overlay.Apply(&s.Overlay); err != nil {
		return s, err
	}
	if err := s.NAT.Apply(f.Forward, f.Masquerade, f.Binat); err != nil {
		return s, err
	}
	tunnel := s.Overlay.Port
	if !s.Overlay.On {
		tunnel = 0
	}
	if err := s.NAT.Check(s.Pods.Ranges, tunnel); err != nil {
		return s, err
	}
	t := &s.Engine.Timeouts
	for _, d := range []struct {
		key   string
		value any
		to    *time.Duration
	}{
		{"syn", f.Timeouts.Syn, &t.Syn}, {"established", f.Timeouts.Established, &t.Established},
		{"fin", f.Timeouts.Fin, &t.Fin}, {"rst", f.Timeouts.Rst, &t.Rst},
		{"udp", f.Timeouts.UDP, &t.UDP}, {"udp_reply", f.Timeouts.UDPReply, &t.UDPReply},
		{"short", f.Timeouts.Short, &t.Short},
	} {
		if d.value == nil {
			continue
		}
		var err error
		if *d.to, err = lifetime(d.value); err != nil {
			return s, fmt.Errorf("timeouts.%s: %w", d.key, err)
		}
	}
	return s, nil
}

// leastPerSource is the least number of half-open states of one source that makes sense: with
// fewer, other sources are mistaken for it too often (bpf/lib/half_open_source.h).
const leastPerSource = 4

// checkTranslations refuses numbers of translations for which the state table has no space, or that
// could not be guaranteed. The translation to evict is looked for in a part of the table, where a
// pod must have some.
func checkTranslations(o *firewall.Options) error {
	if o.MaxTranslations > o.MaxStates/3 {
		return fmt.Errorf("states.translations: %d are too many for states.max = %d: a translated "+
			"flow takes three entries", o.MaxTranslations, o.MaxStates)
	}
	all, one := o.Translations()
	if least := max(64, o.MaxStates/4096); o.MaxPodTranslations > 0 && one < least {
		return fmt.Errorf("states.pod_translations: %d of %d are too few; at least %d",
			o.MaxPodTranslations, all, least)
	}
	return nil
}
