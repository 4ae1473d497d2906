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

// TestSettingsOthersContainers: what other programs make for their containers is guarded only by a
// glob that names it.
func TestSettingsOthersContainers(t *testing.T) {
	s := DefaultSettings()
	for name, maker := range map[string]string{
		"docker0": "Docker", "docker_gwbridge": "Docker", "br-0123456789ab": "Docker",
		"virbr0": "libvirt", "vnet3": "libvirt", "podman1": "Podman", "cni-podman0": "Podman",
		"cni0": "CNI", "veth5aa8d22": "a container", "lxdbr0": "LXD",
		"nk0": "a container", "nk12": "a container", "nk": "", "nkn0": "",
		"eth0": "", "br0": "", "br-lan": "", "br-0123456789abc": "", "docker": "", "vnet": "",
		"wg0": "", "pod:web": "", "lo": "",
	} {
		if got := s.Skips(name); got != maker {
			t.Errorf("%s: skipped for %q, want %q", name, got, maker)
		}
		if want := maker == "" && name != "lo"; s.Guards(name) != want {
			t.Errorf("%s: guarded %v, want %v", name, !want, want)
		}
	}
	s.Interfaces = []string{"?*", "docker0", "veth*"}
	if !s.Guards("docker0") || !s.Guards("veth1") || s.Skips("veth1") != "" || s.Guards("virbr0") {
		t.Error("those that are named, and no others")
	}
	s.Interfaces = []string{"eth0"}
	if s.Skips("docker0") != "" || s.Guards("docker0") {
		t.Error("what no glob matches is not skipped")
	}
}
