package agent

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
)

func readText(t *testing.T, text string) (Settings, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSettings(file)
	if err != nil {
		err = &stripped{err, strings.ReplaceAll(err.Error(), file, "weir.toml")}
	}
	return s, err
}

type stripped struct {
	error
	text string
}

func (s *stripped) Error() string { return s.text }
func (s *stripped) Unwrap() error { return s.error }

func TestSettingsEveryKey(t *testing.T) {
	got, err := readText(t, `
interfaces = ["eth0", "wan*"]
essential = false
dhcp = false
log = "json"
[states]
max = 1000
half_open = 100
per_source = 0
tracks = 10
liberal = true
syn_cookies = false
[timeouts]
syn = 1
established = "2h"
fin = 3
rst = 4
udp = 5
udp_reply = "6s"
short = "700ms"
`)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultSettings()
	want.Host.Interfaces = []string{"eth0", "wan*"}
	want.LogJSON = true
	e := &want.Engine
	e.NoEssential, e.MaxStates, e.MaxHalfOpen, e.MaxTracks, e.Liberal = true, 1000, 100, 10, true
	e.MaxPerSource, e.NoCookies, e.NoDHCP = 0, true, true
	tt := &e.Timeouts
	tt.Syn, tt.Established, tt.Fin, tt.Rst = time.Second, 2*time.Hour, 3*time.Second, 4*time.Second
	tt.UDP, tt.UDPReply, tt.Short = 5*time.Second, 6*time.Second, 700*time.Millisecond
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestSettingsLink: pods get a veth unless the settings ask for a netkit.
func TestSettingsLink(t *testing.T) {
	for text, want := range map[string]string{"": "veth", "link = \"veth\"": "veth",
		"link = \"netkit\"": "netkit"} {
		if got, err := readText(t, "[pods]\n"+text+"\n"); err != nil || got.Pods.Link != want {
			t.Errorf("%q: %q, %v", text, got.Pods.Link, err)
		}
	}
}

func TestSettingsNothingSaid(t *testing.T) {
	got, err := readText(t, "# nothing\n")
	if err != nil || !reflect.DeepEqual(got, DefaultSettings()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSettingsRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[[forward]]\nlisten = \":80\"\nto = \"10.0.5.9:80\"\nport = 80\n",
			`weir.toml:4:1: unknown setting "forward.port"`},
		{"[[forward]]\nlisten = \":80\"\nto = \"10.0.5.9:80\"\n[[forward]]\nlisten = \":81\"\n",
			`weir.toml: [[forward]] 2: to: "" is not an address and a port`},
		{"[pods]\nranges = [\"10.88.0.0/24\"]\n[[forward]]\nlisten = \":80\"\n" +
			"to = \"10.88.0.9:80\"\n", `weir.toml: [[forward]] 1: to: 10.88.0.9 is in pods.ranges`},
		{"[overlay]\nport = 9\n[[forward]]\nlisten = \":9\"\nproto = \"udp\"\n" +
			"to = \"10.0.5.9:9\"\n",
			`weir.toml: [[forward]] 1: listen: udp port 9 is that of the tunnel`},
		{"interface = [\"eth0\"]", `weir.toml:1:1: unknown setting "interface"`},
		{"log = \"text\"\n[states]\nmax = 5\nmaximum = 6\n",
			`weir.toml:4:1: unknown setting "states.maximum"`},
		{"\n[state]\nmax = 5\n", `weir.toml:2:2: unknown setting "state"`},
		{"timeouts = 5", `weir.toml:1:12: timeouts: unexpected integer`},
		{"[states]\nmax = \"x\"", `weir.toml:2:7: states.max: unexpected string`},
		{"interfaces = [\"eth0\"", `weir.toml:1:`},
		{"log = \"loud\"", `log: "loud" is neither "text" nor "json"`},
		{"[pods]\nranges = [\"10.88.0.0/24\", \"fd00::/120\", \"10.89.0.0/24\"]",
			`pods.ranges: 10.89.0.0/24: there can be only one range of a family`},
		{"[pods]\nranges = [\"224.0.0.0/24\"]", `pods.ranges: pod range 224.0.0.0/24: overlaps`},
		{"[pods]\nlink = \"auto\"", `pods.link: "auto" is neither "veth" nor "netkit"`},
		{"[states]\nmax = 0", `states.max: 0 is not between 1 and 67108864`},
		{"[states]\ntracks = -1", `states.tracks: -1 is not between`},
		{"[timeouts]\nsyn = 0", `weir.toml: timeouts.syn: a lifetime lies between`},
		{"[timeouts]\nsyn = 9999999999999", `9999999999999 seconds are too many`},
		{"[timeouts]\nsyn = \"soon\"", `"soon" is not a lifetime`},
		{"[timeouts]\nsyn = true", `not a lifetime; write seconds (20)`},
		{"interfaces = [\"\"]", `interfaces: "" is not a name`},
		{"interfaces = [\"eth[\"]", `interfaces: "eth[" is not a name`},
		{"interfaces = [\"eth0,eth1\"]", `interfaces: "eth0,eth1" is several names`},
		{"interfaces = [\"a/b\"]", `interfaces: "a/b" is not a name`},
	} {
		_, err := readText(t, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q\n got  %v\n want %s", c.text, err, c.want)
		}
	}
}

// TestUnknownSettings: an unknown setting names the one that it was meant to be.
func TestUnknownSettings(t *testing.T) {
	for _, c := range []struct{ text, hint string }{
		{"interface = [\"eth0\"]", `did you mean "interfaces"? weir.toml(5) lists all settings`},
		{"[pods]\nrange = [\"10.88.0.0/24\"]", `did you mean "pods.ranges"? weir.toml(5)`},
		{"[state]\nmax = 5", `did you mean "states"? weir.toml(5)`},
		{"[[forward]]\nlistn = \":80\"", `did you mean "forward.listen"? weir.toml(5)`},
		{"[overlay]\nprot = 5", `did you mean "overlay.port"? weir.toml(5)`},
		{"[pods]\nnonsense = 5", "weir.toml(5) lists all settings"},
		{"[overlay]\npeers = 5", "other nodes are not settings"},
	} {
		_, err := readText(t, c.text)
		var hint interface{ Hint() string }
		if !errors.As(err, &hint) || !strings.HasPrefix(hint.Hint(), c.hint) {
			t.Errorf("%q: %v, want the hint %s", c.text, err, c.hint)
		}
	}
}

// TestTranslations: numbers for which there is no space, or that cannot be guaranteed, are refused.
func TestTranslations(t *testing.T) {
	for _, o := range []firewall.Options{
		{MaxStates: 300, MaxTranslations: 101}, {MaxStates: 1 << 20, MaxPodTranslations: 255},
		{MaxStates: 1 << 18, MaxPodTranslations: 63},
	} {
		if err := checkTranslations(&o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	for _, o := range []firewall.Options{{MaxStates: 64},
		{MaxStates: 1 << 18, MaxTranslations: 1 << 16, MaxPodTranslations: 64},
		firewall.DefaultOptions()} {
		if err := checkTranslations(&o); err != nil {
			t.Error(err)
		}
	}
}
