package rule

import (
	"errors"
	"sync"

	"github.com/weirnet/weir/internal/program"
)

// workspace is the memory in which the classes of one dimension are made. A Cache keeps it: a
// change of one rule of thousands would else leave megabytes to the garbage collector.
type workspace struct {
	limits  []limited // baked conditions
	edges   []edge
	regions []region
	known   known
}

// few is how many values memory is kept for, whatever is needed.
const few = 1024

// emptied returns a slice without values and with space for n: s, unless it is too small or several
// times as large. There is space for some more: the next rule set may have one rule more.
func emptied[T any](s []T, n int) []T {
	if cap(s) < n || cap(s) > few && cap(s)/4 > n {
		return make([]T, 0, n+n/32)
	}
	return s[:0]
}

var errClasses = errors.New("the rules distinguish more than 65536 classes of ports; use ranges")

// classify builds the classifier. Long rule sets have two or three dimensions with many classes,
// which are made side by side where there are several processors.
func (c *compiler) classify() error {
	c.Classes.Words = (len(c.Rules) + 63) / 64
	var all sync.WaitGroup
	var errs [program.NumDims]error
	for dim := range program.NumDims {
		all.Go(func() { errs[dim] = c.classifyBy(dim) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// classifyBy builds what the classifier has of one dimension.
func (c *compiler) classifyBy(dim program.Dim) error {
	k, w := &c.Classes, &c.work[dim]
	cl, err := w.classify(len(c.Rules), dimRange[dim])
	if err != nil {
		return err
	}
	k.Vectors[dim] = cl.vectors
	k.Used[dim] = len(w.limits) > 0
	ok := true
	switch dim {
	case program.DimSrc:
		fillAddresses(&k.Src, &cl, c.named6[program.DimSrc])
	case program.DimDst:
		fillAddresses(&k.Dst, &cl, c.named6[program.DimDst])
	case program.DimSrcPort, program.DimDstPort:
		ports := make([]uint16, program.PortIndexes)
		ok = cl.index(ports)
		k.Ports[dim-program.DimSrcPort] = ports
	case program.DimProto:
		ok = cl.index(k.Proto[:])
	case program.DimFlags:
		ok = cl.index(k.Flags[:])
	case program.DimICMP:
		ok = cl.index(k.ICMP[:])
	case program.DimHook:
		ok = cl.index(k.Hook[:])
	}
	if !ok {
		return errClasses
	}
	return nil
}
