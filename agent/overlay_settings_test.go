package agent

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/peers"
)

func TestOverlaySettings(t *testing.T) {
	got, err := readText(t, "[overlay]\n")
	want := DefaultSettings()
	want.Overlay.On = true
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("an empty section: %+v, %v", got, err)
	}
	got, err = readText(t, `
[overlay]
name = "mesh0"
port = 1234
addresses = ["10.99.0.1/32", "fd99::1/128"]
key = "/etc/weir/key"
mtu = 1300
wg = false
backend = "auto"
`)
	want.Overlay = peers.Settings{On: true, Name: "mesh0", Port: 1234, KeyFile: "/etc/weir/key",
		MTU: 1300, NoWG: true, Backend: peers.BackendAuto,
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.99.0.1/32"),
			netip.MustParsePrefix("fd99::1/128")}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("every key:\n got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestOverlaySettingsRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`name = ""`, `overlay.name: "" is not a name`},
		{`name = "averylongname000"`, `is not a name for an interface`},
		{`name = "pod:x"`, `is not a name for an interface`},
		{`port = 0`, `overlay.port: 0 is not between 1 and 65535`},
		{`addresses = ["10.99.0.1"]`,
			`overlay.addresses: "10.99.0.1" is not an address with a length`},
		{`addresses = ["10.99.0.1/24", "10.99.0.1/24"]`,
			`overlay.addresses: 10.99.0.1/24 is there twice`},
		{`key = "key"`, `overlay.key: "key" is not an absolute path`},
		{`mtu = 576`, `overlay.mtu: 576 is not between 1280`},
		{`backend = "fast"`, `overlay.backend: "fast" is not "user", "kernel" or "auto"`},
		{`peers = 5`, `weir.toml:2:1: unknown setting "overlay.peers"`},
	} {
		if _, err := readText(t, "[overlay]\n"+c.text+"\n"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q\n got  %v\n want %s", c.text, err, c.want)
		}
	}
}

// TestPeersAreNoSettings: who writes a peer into the settings, as into those of wg-quick, gets the
// command that adds it.
func TestPeersAreNoSettings(t *testing.T) {
	for _, text := range []string{
		"[[peer]]\nendpoint = \"host.example\"\n", "[peers]\nb = 5\n",
		"[overlay]\nendpoint = \"host.example\"\n", "[[overlay.peer]]\nname = \"b\"\n",
		"[[Peer]]\nEndpoint = \"host.example\"\n",
	} {
		_, err := readText(t, text)
		var h interface{ Hint() string }
		if !errors.As(err, &h) || !strings.Contains(h.Hint(), "weir peer add") ||
			!strings.Contains(h.Hint(), "HOST:51820") {
			t.Errorf("%q: %v, without the command", text, err)
		}
	}
	_, err := readText(t, "[overlay]\nspeed = 9\n")
	var h interface{ Hint() string }
	if !errors.As(err, &h) || !strings.Contains(h.Hint(), "weir.toml(5)") {
		t.Errorf("an unknown setting: %v, without the page", err)
	}
}
