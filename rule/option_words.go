package rule

import (
	"maps"
	"math"
	"slices"
)

// form is what follows an option word.
type form uint8

const (
	formNone      form = iota // nothing; op with a and b is the condition
	formAddress               // address; op is OpSrcIn or OpDstIn
	formPorts                 // port list
	formProtocol              // protocol
	formInterface             // name, glob, any or address; op is OpRecv, OpXmit or OpVia
	formFlags                 // flag list, names in flags
	formFrag                  // flag list, or nothing for plain frag
	formNumber                // one number up to hi
	formNumbers               // list of numbers up to hi
	formDSCP                  // list of names and numbers
	formVersion               // 4 or 6
	formState                 // a word of stateWords
	// tag, defer-action, liberal: belongs to the rule, not to its conditions
	formMark
)

// option is an option word.
type option struct {
	form  form
	op    CondOp
	a, b  uint32
	flags []bitName
	hi    uint32
}

var options = map[string]option{
	"in":          {op: OpIn},
	"out":         {op: OpOut},
	"established": {op: OpEstab},
	"setup":       {op: OpFlags, a: tcpSYN, b: tcpSYN | tcpACK},
	"ip4":         {op: OpVersion, a: 4},
	"ipv4":        {op: OpVersion, a: 4},
	"ip6":         {op: OpVersion, a: 6},
	"ipv6":        {op: OpVersion, a: 6},
	"verrevpath":  {op: OpVerRevPath},
	"versrcreach": {op: OpVerSrcReach},
	"antispoof":   {op: OpAntiSpoof},

	"src-ip":   {form: formAddress, op: OpSrcIn},
	"src-ip6":  {form: formAddress, op: OpSrcIn},
	"dst-ip":   {form: formAddress, op: OpDstIn},
	"dst-ip6":  {form: formAddress, op: OpDstIn},
	"src-port": {form: formPorts, op: OpSrcPort},
	"dst-port": {form: formPorts, op: OpDstPort},
	"proto":    {form: formProtocol},

	"recv": {form: formInterface, op: OpRecv},
	"xmit": {form: formInterface, op: OpXmit},
	"via":  {form: formInterface, op: OpVia},

	"tcpflags":  {form: formFlags, op: OpFlags, flags: tcpFlags},
	"ipoptions": {form: formFlags, op: OpIPOptions, flags: ipOptions},
	"iptos":     {form: formFlags, op: OpTOS, flags: tosFlags},
	"frag":      {form: formFrag, op: OpFrag, flags: fragFlags},

	"tcpseq":       {form: formNumber, op: OpSeq, hi: math.MaxUint32},
	"tcpack":       {form: formNumber, op: OpAck, hi: math.MaxUint32},
	"ipprecedence": {form: formNumber, op: OpPrecedence, hi: 7},

	"tcpwin":     {form: formNumbers, op: OpWin, hi: math.MaxUint16},
	"icmptypes":  {form: formNumbers, op: OpICMPType, hi: 255},
	"icmptype":   {form: formNumbers, op: OpICMPType, hi: 255},
	"icmp6types": {form: formNumbers, op: OpICMP6Type, hi: 255},
	"icmp6type":  {form: formNumbers, op: OpICMP6Type, hi: 255},
	"ipttl":      {form: formNumbers, op: OpTTL, hi: 255},
	"iplen":      {form: formNumbers, op: OpLen, hi: math.MaxUint16},
	"ipid":       {form: formNumbers, op: OpID, hi: math.MaxUint16},
	"tagged":     {form: formNumbers, op: OpTagged, hi: math.MaxUint16 - 1},
	"dscp":       {form: formDSCP, op: OpDSCP},
	"ipversion":  {form: formVersion, op: OpVersion},
	"ipver":      {form: formVersion, op: OpVersion},

	"keep-state":             {form: formState},
	"limit":                  {form: formState},
	"record-state":           {form: formState},
	"set-limit":              {form: formState},
	"tag":                    {form: formMark},
	"defer-action":           {form: formMark},
	"defer-immediate-action": {form: formMark},
	"liberal":                {form: formMark},
}

var stateWords = map[string]StateOp{
	"keep-state": StateKeep, "limit": StateLimit, "record-state": StateRecord,
	"set-limit": StateSetLimit,
}

var stateNames = [...]string{
	StateCheck: "check-state", StateKeep: "keep-state", StateLimit: "limit",
	StateRecord: "record-state", StateSetLimit: "set-limit",
}

// Word returns the word of the state operation, "unknown" for none.
func (op StateOp) Word() string {
	if int(op) < len(stateNames) && stateNames[op] != "" {
		return stateNames[op]
	}
	return "unknown"
}

// Words returns the words that actions and options begin with, aliases included, in order.
func Words() (actionWords, optionWords []string) {
	return slices.Sorted(maps.Keys(actions)), slices.Sorted(maps.Keys(options))
}
