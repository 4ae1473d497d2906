package agent

import (
	"errors"
	"testing"
)

func TestLockIsHeldOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); !errors.Is(err, errLocked) {
		t.Errorf("second claim: got %v, want %v", err, errLocked)
	}
	first.release()
	again, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	again.release()
}
