package kernel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// maxProcessed is how many instructions the verifier may process for a program, on every kernel:
// its limit is a million, and most new versions count more.
const maxProcessed = 300_000

// TestProcessedInstructions loads what clang 14 made, which is committed, and asks the kernel what
// each program cost its verifier.
func TestProcessedInstructions(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	countProcessed(t, committed(t))
}

func committed(t *testing.T) *ebpf.CollectionSpec {
	spec, err := readPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestLongProcessedInstructionsOfClang19 does so with what clang 19 makes of the same C.
// WEIR_OBJECT names an object made elsewhere, for a machine without a compiler.
func TestLongProcessedInstructionsOfClang19(t *testing.T) {
	nstest.RequireRoot(t)
	countProcessed(t, byClang19(t))
}

func byClang19(t *testing.T) *ebpf.CollectionSpec {
	path := os.Getenv("WEIR_OBJECT")
	if path == "" {
		path = filepath.Join(t.TempDir(), "weir.o")
		args := append(flags(t), "-target", "bpfel", "-c", "../../bpf/weir.bpf.c", "-o", path)
		if out, err := exec.Command("clang-19", args...).CombinedOutput(); err != nil {
			t.Fatalf("clang-19: %v\n%s", err, out)
		}
	}
	spec, err := ebpf.LoadCollectionSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// flags returns those with which gen.go has the programs compiled.
func flags(t *testing.T) []string {
	b, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), `-cflags "`)
	list, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		t.Fatal("gen.go: no -cflags")
	}
	return strings.Fields(list)
}

func countProcessed(t *testing.T, spec *ebpf.CollectionSpec) {
	(&Engine{options: firewall.DefaultOptions()}).size(spec)
	for name, p := range spec.Programs {
		t.Run(name, func(t *testing.T) {
			one := *spec
			one.Programs = map[string]*ebpf.ProgramSpec{name: p}
			c, err := ebpf.NewCollection(&one)
			var refused *ebpf.VerifierError
			if errors.As(err, &refused) {
				t.Fatalf("refused: %v\n%s", refused,
					strings.Join(refused.Log[max(0, len(refused.Log)-30):], "\n"))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			info, err := c.Programs[name].Info()
			if err != nil {
				t.Fatal(err)
			}
			n, ok := info.VerifiedInstructions()
			if !ok || n == 0 {
				t.Fatal("the kernel does not report how many instructions its verifier processed")
			}
			t.Logf("%d instructions processed", n)
			if n > maxProcessed {
				t.Errorf("%d instructions processed, at most %d", n, maxProcessed)
			}
		})
	}
}
