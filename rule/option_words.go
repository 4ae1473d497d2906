package rule

import (
	"maps"
	"math"
	"slices"

	"github.com/weirnet/weir/rule/op"
)

// form is what follows an option word.
type form uint8

const (
	formNone      form = iota // nothing; op with a and b is the condition
	formAddress               // address; op is CondSrcIn or CondDstIn
	formPorts                 // port list
	formProtocol              // protocol
	formInterface             // name, glob, any or address; op is CondRecv, CondXmit or CondVia
	formFlags                 // flag list, names in flags
	formFrag                  // flag list, or nothing for plain frag
	formNumber                // one number up to hi
	formNumbers               // list of numbers up to hi
	formDSCP                  // list of names and numbers
	formVersion               // 4 or 6
	formState                 // a word of stateWords
	formRate                  // limit-rate
	// tag, defer-action, liberal: belongs to the rule, not to its conditions
	formMark
)

// option is an option word.
type option struct {
	form  form
	op    op.Cond
	a, b  uint32
	flags []bitName
	hi    uint32
}

var options = map[string]option{
	"in":          {op: op.CondIn},
	"out":         {op: op.CondOut},
	"established": {op: op.CondEstab},
	"estab":       {op: op.CondEstab},
	"setup":       {op: op.CondFlags, a: tcpSYN, b: tcpSYN | tcpACK},
	"ip4":         {op: op.CondVersion, a: 4},
	"ipv4":        {op: op.CondVersion, a: 4},
	"ip6":         {op: op.CondVersion, a: 6},
	"ipv6":        {op: op.CondVersion, a: 6},
	"verrevpath":  {op: op.CondVerRevPath},
	"versrcreach": {op: op.CondVerSrcReach},
	"antispoof":   {op: op.CondAntiSpoof},

	"src-ip":   {form: formAddress, op: op.CondSrcIn},
	"src-ip6":  {form: formAddress, op: op.CondSrcIn},
	"dst-ip":   {form: formAddress, op: op.CondDstIn},
	"dst-ip6":  {form: formAddress, op: op.CondDstIn},
	"src-port": {form: formPorts, op: op.CondSrcPort},
	"src-ipv6": {form: formAddress, op: op.CondSrcIn},
	"dst-ipv6": {form: formAddress, op: op.CondDstIn},
	"dst-port": {form: formPorts, op: op.CondDstPort},
	"proto":    {form: formProtocol},

	"recv": {form: formInterface, op: op.CondRecv},
	"xmit": {form: formInterface, op: op.CondXmit},
	"via":  {form: formInterface, op: op.CondVia},

	"tcpflags":  {form: formFlags, op: op.CondFlags, flags: tcpFlags},
	"tcpflgs":   {form: formFlags, op: op.CondFlags, flags: tcpFlags},
	"ipoptions": {form: formFlags, op: op.CondIPOptions, flags: ipOptions},
	"ipopts":    {form: formFlags, op: op.CondIPOptions, flags: ipOptions},
	"iptos":     {form: formFlags, op: op.CondTOS, flags: tosFlags},
	"frag":      {form: formFrag, op: op.CondFrag, flags: fragFlags},
	"fragment":  {form: formFrag, op: op.CondFrag, flags: fragFlags},

	"tcpseq":       {form: formNumber, op: op.CondSeq, hi: math.MaxUint32},
	"tcpack":       {form: formNumber, op: op.CondAck, hi: math.MaxUint32},
	"ipprecedence": {form: formNumber, op: op.CondPrecedence, hi: 7},

	"tcpwin":     {form: formNumbers, op: op.CondWin, hi: math.MaxUint16},
	"icmptypes":  {form: formNumbers, op: op.CondICMPType, hi: 255},
	"icmptype":   {form: formNumbers, op: op.CondICMPType, hi: 255},
	"icmp6types": {form: formNumbers, op: op.CondICMP6Type, hi: 255},
	"icmp6type":  {form: formNumbers, op: op.CondICMP6Type, hi: 255},
	"ipttl":      {form: formNumbers, op: op.CondTTL, hi: 255},
	"iplen":      {form: formNumbers, op: op.CondLen, hi: math.MaxUint16},
	"ipid":       {form: formNumbers, op: op.CondID, hi: math.MaxUint16},
	"tagged":     {form: formNumbers, op: op.CondTagged, hi: math.MaxUint16 - 1},
	"dscp":       {form: formDSCP, op: op.CondDSCP},
	"ipversion":  {form: formVersion, op: op.CondVersion},
	"ipver":      {form: formVersion, op: op.CondVersion},

	"keep-state":             {form: formState},
	"limit":                  {form: formState},
	"record-state":           {form: formState},
	"set-limit":              {form: formState},
	"limit-rate":             {form: formRate},
	"tag":                    {form: formMark},
	"defer-action":           {form: formMark},
	"defer-immediate-action": {form: formMark},
	"liberal":                {form: formMark},
}

var stateWords = map[string]op.State{
	"keep-state": op.StateKeep, "limit": op.StateLimit, "record-state": op.StateRecord,
	"set-limit": op.StateSetLimit,
}

// Keywords returns the words that actions and options begin with, aliases included, in order.
func Keywords() (actionWords, optionWords []string) {
	return slices.Sorted(maps.Keys(actions)), slices.Sorted(maps.Keys(options))
}
