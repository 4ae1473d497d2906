package services

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordRefusesTwice: two services of one name, or of one address, port and protocol, are
// refused with the place, since the engine would refuse all services because of them.
func TestRecordRefusesTwice(t *testing.T) {
	const web = `{"name": "web", "proto": "tcp", "at": "10.200.0.10:80", "table": "a=b",
		"port": 80}`
	for name, c := range map[string]struct{ other, want string }{
		"one of each": {`{"name": "dns", "proto": "udp", "at": "10.200.0.10:80", "table": "a=b",
			"port": 80}`, ""},
		"the name": {`{"name": "web", "proto": "tcp", "at": "10.200.0.11:80", "table": "a=b",
			"port": 80}`, "services[1]: service web: services[0] has that name, too"},
		"the port": {`{"name": "other", "proto": "tcp", "at": "10.200.0.10:80", "table": "a=b",
			"port": 80}`, "services[1]: service other: services[0], web, has tcp port 80 of " +
			"10.200.0.10, too"},
		"no port": {`{"name": "other", "proto": "tcp", "at": "10.200.0.10:80", "table": "a=b"}`,
			"services[1]: service other: ports of pods"},
	} {
		file := filepath.Join(t.TempDir(), "services.json")
		text := `{"version": 1, "services": [` + web + "," + c.other + "]}"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := readRecord(file)
		switch {
		case c.want == "":
			if err != nil || len(r.Services) != 2 {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "%!"):
			t.Errorf("%s: %v", name, err)
		}
	}
}
