package nstest

import (
	"os"
	"time"
)

// TempDir makes a directory that processes of the test may still be writing to when it ends, such
// as the helpers of a browser. For half a minute it is removed again and again. What is left then
// fails the test.
func TempDir(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nstest-")
	if err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	t.Cleanup(func() {
		for range 300 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("remove what the test has left: %v", err)
	})
	return dir
}
