package program

import (
	"fmt"
	"math/bits"

	"github.com/weirnet/weir/rule/op"
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
	HasRate        // limit-rate
	HasPipe        // pipe
	HasNAT         // nat
	HasFwd         // fwd
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
	"limit-rate", "pipe", "nat", "fwd",
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
		if lack := p.Needs(slot) &^ have; lack != 0 {
			return fmt.Errorf("rule %d: this engine does not have %s", p.Rules[slot].Number, lack)
		}
	}
	return nil
}

var condFeatures = [...]Features{
	op.CondVersion: HasMixed, op.CondProto: HasMixed, op.CondSrcIn: HasMixed,
	op.CondDstIn: HasMixed, op.CondSrcMe: HasMe,
	op.CondDstMe:    HasMe,
	op.CondSrcTable: HasTable, op.CondDstTable: HasTable, op.CondSrcPort: HasMixed,
	op.CondDstPort: HasMixed,
	op.CondIn:      HasMixed, op.CondOut: HasMixed,
	op.CondRecv: HasInterface, op.CondXmit: HasInterface, op.CondVia: HasInterface,
	op.CondRecvGlob: HasGlob,
	op.CondXmitGlob: HasGlob, op.CondViaGlob: HasGlob,
	op.CondRecvAny: HasAnyIface, op.CondXmitAny: HasAnyIface, op.CondViaAny: HasAnyIface,
	op.CondRecvAddr: HasIfaceAddr, op.CondXmitAddr: HasIfaceAddr, op.CondViaAddr: HasIfaceAddr,
	op.CondFlags: HasMixed, op.CondEstab: HasMixed, op.CondSeq: HasSeq, op.CondAck: HasSeq,
	op.CondWin:      HasSeq,
	op.CondFrag:     HasFragBits,
	op.CondICMPType: HasMixed, op.CondICMP6Type: HasMixed, op.CondTTL: HasIPFields,
	op.CondLen:       HasIPFields,
	op.CondID:        HasIPFields,
	op.CondIPOptions: HasIPOptions, op.CondTOS: HasTOS, op.CondDSCP: HasTOS,
	op.CondPrecedence: HasTOS,
	op.CondTagged:     HasTagged,
	op.CondVerRevPath: HasVerRevPath, op.CondVerSrcReach: HasVerSrcReach,
	op.CondAntiSpoof: HasAntiSpoof,
}

var actionFeatures = [...]Features{
	op.ActionReject: HasReject, op.ActionUnreach: HasReject, op.ActionUnreach6: HasReject,
	op.ActionReset:  HasReset,
	op.ActionSkipTo: HasSkipTo, op.ActionCall: HasCall, op.ActionReturn: HasCall,
	op.ActionCheckState: HasKeepState, op.ActionNAT: HasNAT,
	op.ActionFwd: HasFwd,
}

var stateFeatures = [...]Features{
	op.StateCheck: HasKeepState, op.StateKeep: HasKeepState, op.StateLimit: HasKeepState | HasLimit,
	op.StateRecord:   HasKeepState | HasRecordState,
	op.StateSetLimit: HasKeepState | HasLimit | HasSetLimit,
}

// Needs returns what one rule needs.
func (p *Program) Needs(slot int) Features {
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
		{c.Prob != 0, HasProb}, {c.Tag != 0, HasTagged}, {c.Every != 0, HasRate},
		{c.Pipe != 0, HasPipe},
	} {
		if part.is {
			f |= part.f
		}
	}
	return f
}
