package host

import "testing"

func TestSettingsGuards(t *testing.T) {
	s := DefaultSettings()
	if !s.Guards("eth0") || s.Guards("lo") {
		t.Error("the default guards everything but the loopback")
	}
	s.Interfaces = []string{"eth*", "lo"}
	if !s.Guards("eth7") || !s.Guards("lo") || s.Guards("wlan0") {
		t.Error("globs and names")
	}
}
