package test

import (
	"os/exec"
	"testing"
)

// TestUnitHasFewRights asks systemd what the unit may do. TestLongPackageBooted shows that this is
// enough, and that it holds.
func TestUnitHasFewRights(t *testing.T) {
	t.Parallel()
	need(t, "systemd-analyze")
	if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager",
		"--threshold=30", "../dist/weir.service").CombinedOutput(); err != nil {
		t.Errorf("the unit is exposed more than 3.0: %v\n%s", err, out[max(0, len(out)-300):])
	}
}
