package firewall

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/packet"
)

func TestEveryReasonHasAWordOfItsOwn(t *testing.T) {
	seen := map[string]Reason{}
	for r := range numReasons {
		name := r.String()
		if strings.HasPrefix(name, "reason-") || strings.ContainsAny(name, " _") {
			t.Errorf("reason %d is called %q", r, name)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("reasons %d and %d are both called %q", other, r, name)
		}
		seen[name] = r
	}
}

func TestDecoderReasonsKeepTheirWord(t *testing.T) {
	for r := range packet.Reason(packet.NumReasons) {
		if got, want := (ReasonDecode + Reason(r)).String(), "decode-"+r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
