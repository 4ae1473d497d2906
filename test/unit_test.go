package test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestUnitsHaveFewRights asks systemd what the units may do. TestLongPackageBooted shows that this
// is enough for the agent and the proxy, and that it holds.
func TestUnitsHaveFewRights(t *testing.T) {
	t.Parallel()
	need(t, "systemd-analyze")
	most := map[string]string{"weir": "30", "weir-store": "30", "weir-proxy": "15"}
	units, err := filepath.Glob("../dist/*.service")
	if err != nil || len(units) != len(most) {
		t.Fatalf("units %v, %v", units, err)
	}
	for name, threshold := range most {
		if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager",
			"--threshold="+threshold, "../dist/"+name+".service").CombinedOutput(); err != nil {
			t.Errorf("%s is exposed more than %s tenths: %v\n%s", name, threshold, err,
				out[max(0, len(out)-300):])
		}
	}
}
