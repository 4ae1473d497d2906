package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

// TestJIT: the JIT is missing where the kernel says that it is switched off, not where the setting
// cannot be seen.
func TestJIT(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bpf_jit_enable")
	if what, err := jitSetting(file); err != nil || what == "" {
		t.Errorf("in another network namespace: %q, %v", what, err)
	}
	for text, on := range map[string]bool{"0\n": false, "1\n": true, "2\n": true} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := jitSetting(file); (err == nil) != on {
			t.Errorf("%q: %v", text, err)
		}
	}
}
