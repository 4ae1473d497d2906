package rule

import (
	"fmt"
	"math/bits"
)

// The parts of the language that an engine may lack. What the classifier decides alone is in no
// Features: every engine has it.
const (
	HasMe        Features = 1 << iota // me, me6
	HasTable                          // table(NAME)
	HasInterface                      // recv, xmit, via with a name
	HasGlob                           // recv, xmit, via with a pattern
	HasAnyIface                       // recv any, xmit any, via any
	HasIfaceAddr                      // recv, xmit, via with an address
	// addresses, ports, protocols, flags, types or directions in an or-block with something else
	HasMixed
	HasSeq         // tcpseq, tcpack, tcpwin
	HasFragBits    // frag with df, mf, rf
	HasIPFields    // ipttl, iplen, ipid
	HasIPOptions   // ipoptions
	HasTOS         // iptos, dscp, ipprecedence
	HasTagged      // tag, tagged
	HasVerRevPath  // verrevpath
	HasVerSrcReach // versrcreach
	HasAntiSpoof   // antispoof
	HasReject      // reject, unreach, unreach6
	HasReset       // reset
	HasSkipTo      // skipto
	HasCall        // call, return
	HasKeepState   // check-state, keep-state
	HasLimit       // limit
	HasRecordState // record-state
	HasSetLimit    // set-limit
	HasFlows       // named flows
	HasDefer       // defer-action
	HasLiberal     // liberal
	HasLog         // log
	HasProb        // prob
	numFeatures    = iota
)

// AllFeatures is the whole language.
const AllFeatures Features = 1<<numFeatures - 1

var featureNames = [numFeatures]string{
	"me", "table", "recv, xmit or via NAME", "recv, xmit or via PATTERN", "recv, xmit or via any",
	"recv, xmit or via ADDRESS",
	"an or-block of conditions of different kinds", "tcpseq, tcpack or tcpwin",
	"frag with df, mf or rf", "ipttl, iplen or ipid", "ipoptions",
	"iptos, dscp or ipprecedence", "tag or tagged", "verrevpath", "versrcreach", "antispoof",
	"reject or unreach", "reset", "skipto",
	"call or return", "check-state or keep-state", "limit", "record-state", "set-limit",
	"a flow name", "defer-action", "liberal", "log", "prob",
}

// String names the lowest feature of the set in the words of the rules.
func (f Features) String() string {
	if f &= AllFeatures; f == 0 {
		return "nothing"
	}
	return featureNames[bits.TrailingZeros64(uint64(f))]
}

// Lacks returns an error that names the first rule that needs more than have, or nil. Engines call
// it before they load a Program.
func (p *Program) Lacks(have Features) error {
	if p.Features&^have == 0 {
		return nil
	}
	for slot := range p.Rules {
		if lack := p.needs(slot) &^ have; lack != 0 {
			return fmt.Errorf("rule %d: this engine does not have %s", p.Rules[slot].Number, lack)
		}
	}
	return nil
}

var condFeatures = [...]Features{
	OpVersion: HasMixed, OpProto: HasMixed, OpSrcIn: HasMixed, OpDstIn: HasMixed, OpSrcMe: HasMe,
	OpDstMe:    HasMe,
	OpSrcTable: HasTable, OpDstTable: HasTable, OpSrcPort: HasMixed, OpDstPort: HasMixed,
	OpIn: HasMixed, OpOut: HasMixed,
	OpRecv: HasInterface, OpXmit: HasInterface, OpVia: HasInterface, OpRecvGlob: HasGlob,
	OpXmitGlob: HasGlob, OpViaGlob: HasGlob,
	OpRecvAny: HasAnyIface, OpXmitAny: HasAnyIface, OpViaAny: HasAnyIface,
	OpRecvAddr: HasIfaceAddr, OpXmitAddr: HasIfaceAddr, OpViaAddr: HasIfaceAddr,
	OpFlags: HasMixed, OpEstab: HasMixed, OpSeq: HasSeq, OpAck: HasSeq, OpWin: HasSeq,
	OpFrag:     HasFragBits,
	OpICMPType: HasMixed, OpICMP6Type: HasMixed, OpTTL: HasIPFields, OpLen: HasIPFields,
	OpID:        HasIPFields,
	OpIPOptions: HasIPOptions, OpTOS: HasTOS, OpDSCP: HasTOS, OpPrecedence: HasTOS,
	OpTagged:     HasTagged,
	OpVerRevPath: HasVerRevPath, OpVerSrcReach: HasVerSrcReach, OpAntiSpoof: HasAntiSpoof,
}

var actionFeatures = [...]Features{
	OpReject: HasReject, OpUnreach: HasReject, OpUnreach6: HasReject, OpReset: HasReset,
	OpSkipTo: HasSkipTo, OpCall: HasCall, OpReturn: HasCall,
	OpCheck: HasKeepState,
}

var stateFeatures = [...]Features{
	StateCheck: HasKeepState, StateKeep: HasKeepState, StateLimit: HasKeepState | HasLimit,
	StateRecord:   HasKeepState | HasRecordState,
	StateSetLimit: HasKeepState | HasLimit | HasSetLimit,
}

// needs returns what one rule needs.
func (p *Program) needs(slot int) Features {
	c := &p.Rules[slot]
	f := actionFeatures[c.Action] | stateFeatures[c.State]
	for _, cond := range p.Conds[c.Cond:c.CondEnd] {
		f |= condFeatures[cond.Op]
	}
	for _, part := range [...]struct {
		is bool
		f  Features
	}{
		{c.Flow != 0, HasFlows}, {c.Defer, HasDefer}, {c.Liberal, HasLiberal}, {c.Log, HasLog},
		{c.Prob != 0, HasProb}, {c.Tag != 0, HasTagged},
	} {
		if part.is {
			f |= part.f
		}
	}
	return f
}
