package kernel

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
)

// needCookies skips a test where no SYN cookies can be made.
func (g *pairLab) needCookies(t *testing.T) {
	t.Helper()
	if s := g.stats(t); s.Cookies.Impossible != "" {
		t.Skipf("no SYN cookies here: %s", s.Cookies.Impossible)
	}
}

// keepCookiesOn switches SYN cookies on without a flood. They stay on.
func (g *pairLab) keepCookiesOn(t *testing.T) {
	t.Helper()
	if err := g.engine.setCookies(cookiesOn); err != nil {
		t.Fatal(err)
	}
}

// setCookies sets the mode of SYN cookies. The sweep does not end it: it has looked in the future
// whether they are needed (need_cookies in sweep.h).
func (e *Engine) setCookies(mode uint32) error {
	memory, err := e.objects.Gauges.Memory()
	if err != nil {
		return err
	}
	var is weirGauge
	looked := []int64{math.MaxInt64 / 2}
	_, err = memory.WriteAt(bytesOf(looked), int64(unsafe.Offsetof(is.Looked)))
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(bytesOf([]uint32{mode}), int64(unsafe.Offsetof(is.Cookies)))
	return err
}

// answeredSYN is struct answered_syn.
type answeredSYN struct {
	SYN   uint64
	Until int64
}

// answerTime is REPEAT_TIME: for so long a SYN that was answered by a cookie gets no other one.
const answerTime = 500 * time.Millisecond

// ageAnswers lets time pass for the SYNs that were answered by cookies. It returns until when the
// last of them counted.
func (e *Engine) ageAnswers(d time.Duration) (last int64, err error) {
	values := make([]answeredSYN, ebpf.MustPossibleCPU())
	for n := range e.objects.AnsweredSyns.MaxEntries() {
		if err := e.objects.AnsweredSyns.Lookup(n, &values); err != nil {
			return 0, err
		}
		changed := false
		for i := range values {
			if values[i].SYN != 0 {
				last = max(last, values[i].Until)
				values[i].Until -= int64(d)
				changed = d != 0
			}
		}
		if !changed {
			continue
		}
		if err := e.objects.AnsweredSyns.Put(n, values); err != nil {
			return 0, err
		}
	}
	return last, nil
}
