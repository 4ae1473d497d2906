package cluster

import "bytes"

// The frame of a document of pods, and what is between two pods. In a document of the one form that
// it has, the latter is nowhere else. A quote in a text has a backslash before it, and pods are the
// only objects in a list.
const (
	podsBegin   = `{"version":1,"pods":[`
	podsEnd     = `]}`
	podBegin    = `{"name":"`
	betweenPods = `},` + podBegin
)

// podsChange returns which pods of a chunk are gone and which have come, given a document that
// passed the checks and the next one. The work follows what differs: pods before and after are
// compared as bytes. ok is false if that does not decide whether the next one is a valid document:
// Decode does then.
func podsChange(old, next []byte) (gone, come Pods, ok bool) {
	begin, oldEnd, nextEnd, ok := differing(old, next)
	if !ok {
		return gone, come, false
	}
	if come, ok = newPods(next[begin:nextEnd]); !ok {
		return gone, come, false
	}
	head, tail := next[len(podsBegin):begin], next[nextEnd:len(next)-len(podsEnd)]
	if n := countPods(head) + countPods(tail) + len(come.Pods); n == 0 || n > MaxChunkPods {
		return gone, come, false
	}
	if comma := bytes.HasSuffix(next[:nextEnd], []byte(",")); comma != (len(tail) > 0) {
		return gone, come, false
	}
	return knownPods(old[begin:oldEnd]), come, fits(head, come.Pods, tail)
}

// fits reports whether pods are in order between the last pod of a list and the first of another.
func fits(head []byte, pods []Pod, tail []byte) bool {
	if len(pods) == 0 {
		return true // those around them are in order
	}
	return (len(head) == 0 || firstName(lastPod(head)) < pods[0].Name) &&
		(len(tail) == 0 || pods[len(pods)-1].Name < firstName(tail))
}

// differing returns which whole pods differ: those from begin to the end of each document. Commas
// around them belong to them.
func differing(old, next []byte) (begin, oldEnd, nextEnd int, ok bool) {
	shorter := min(len(old), len(next))
	same := 0
	for step := shorter; step > 0; step /= 2 { // bytes.Equal is faster than a loop over bytes
		for same+step <= shorter && bytes.Equal(old[same:same+step], next[same:same+step]) {
			same += step
		}
	}
	if same < len(podsBegin)+len(podBegin) || len(next) > maxDocument ||
		!bytes.HasSuffix(next, []byte(podsEnd)) {
		return 0, 0, 0, false
	}
	// Back to the begin of the pod that has the first difference.
	begin = len(podsBegin)
	if at := bytes.LastIndex(old[begin:same], []byte(betweenPods)); at >= 0 {
		begin += at + len(`},`)
	}
	// Bytes at the end that are the same, and do not overlap with those at the begin.
	tail := 0
	for limit := shorter - begin; tail < limit && old[len(old)-1-tail] == next[len(next)-1-tail]; {
		tail++
	}
	// On to the begin of a pod in what is the same: at }, so that a pod is whole before it.
	rest := old[len(old)-tail:]
	at := bytes.Index(rest, []byte(betweenPods))
	if at < 0 {
		return begin, len(old) - len(podsEnd), len(next) - len(podsEnd), true
	}
	tail -= at + len(`},`)
	return begin, len(old) - tail, len(next) - tail, true
}

// document makes a document of the pods of a list: with commas between them, and maybe one after
// them.
func document(list []byte) []byte {
	list = bytes.TrimSuffix(list, []byte(","))
	d := make([]byte, 0, len(podsBegin)+len(list)+len(podsEnd))
	return append(append(append(d, podsBegin...), list...), podsEnd...)
}

// newPods decodes and checks pods of a list.
func newPods(list []byte) (p Pods, ok bool) {
	if len(list) == 0 {
		return p, true
	}
	p, err := Decode[Pods](document(list))
	return p, err == nil
}

// knownPods decodes pods of a list that is part of a valid document.
func knownPods(list []byte) (p Pods) {
	if len(list) > 0 {
		p = podsOf(document(list))
	}
	return p
}

// countPods counts pods of a list that is part of a valid document.
func countPods(list []byte) int {
	if len(list) == 0 {
		return 0
	}
	return 1 + bytes.Count(list, []byte(betweenPods))
}

// lastPod returns the last pod of a list.
func lastPod(list []byte) []byte {
	if at := bytes.LastIndex(list, []byte(betweenPods)); at >= 0 {
		return list[at+len(`},`):]
	}
	return list
}

// firstName returns the name of the first pod of a list that is part of a valid document.
func firstName(list []byte) string {
	name, _, _ := bytes.Cut(list[len(podBegin):], []byte{'"'})
	if bytes.IndexByte(name, '\\') >= 0 { // it is not what is between the quotes
		return knownPods(list).Pods[0].Name
	}
	return string(name)
}
