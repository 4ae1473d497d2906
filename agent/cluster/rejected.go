package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirnet/weir/store/cluster"
)

// singles names the values that there are once.
var singles = map[string]string{
	cluster.HeadKey:     "a version of the rules",
	cluster.KeysKey:     "a list of keys of administrators",
	cluster.IdentityKey: "a description of the cluster",
}

// noteRefused shows which of the values that decide about every host this host refuses. What it
// knew before stays in force.
func (s *Service) noteRefused() {
	refused := s.desired.Refused()
	if len(refused) == 0 {
		s.config.Problems.Solved(aboutClaim)
		return
	}
	advice := "an old backup was put back, or someone else writes into the store: look at the " +
		"store hosts"
	var texts []string
	for _, r := range refused {
		texts = append(texts, singles[r.Key]+": "+r.Err.Error())
		if errors.Is(r.Err, cluster.ErrSignature) {
			advice = "if an administrator made it, or wants the previous version back: weir " +
				"cluster sign; if no administrator made it, the store is stolen"
		}
	}
	if s.desired.ImplausibleEpoch() > 0 {
		advice += s.acceptHintLocked()
	}
	s.config.Problems.Set(aboutClaim, fmt.Sprintf("this host does not accept what the store has, "+
		"and keeps what it knew before: %s", strings.Join(texts, "; ")), advice)
}
