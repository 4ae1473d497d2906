package podrange

import (
	"net/netip"
	"testing"
)

// TestSpecial: private networks are free, and what holds or is part of a special one is not.
func TestSpecial(t *testing.T) {
	for text, want := range map[string]string{"10.64.0.0/12": "", "fd00:88::/120": "",
		"240.0.0.0/8": "", "0.0.0.0/0": "0.0.0.0/8", "127.0.1.0/24": "127.0.0.0/8",
		"255.255.255.0/24": "255.255.255.255/32", "::/0": "::/127", "::/96": "::/127",
		"::fff0:0:0/92": "::ffff:0.0.0.0/96", "ff02::/16": "ff00::/8"} {
		got, ok := Special(netip.MustParsePrefix(text))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s overlaps %v, %v; not %q", text, got, ok, want)
		}
	}
}
