package udp

import (
	"net"
	"strconv"
	"sync"
	"time"
)

// zones translates between the names and the numbers of interfaces for link-local addresses. That
// takes a netlink dump of the kernel, so answers are kept for a minute, as package net does.
type zones struct {
	mu      sync.Mutex
	dumped  time.Time // when the interfaces were listed
	names   map[int]string
	indexes map[string]int
}

const zoneLife = time.Minute

// index returns the number of the interface with that name, or of the number in digits; 0 when
// there is none.
func (z *zones) index(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.refreshLocked(false)
	if i, ok := z.indexes[name]; ok {
		return i
	}
	if i, err := strconv.Atoi(name); err == nil {
		return i
	}
	z.refreshLocked(time.Since(z.dumped) > time.Second)
	return z.indexes[name]
}

// name returns the name of the interface with that number, or the number in digits.
func (z *zones) name(index int) string {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.refreshLocked(false)
	name, ok := z.names[index]
	if !ok {
		z.refreshLocked(time.Since(z.dumped) > time.Second)
		if name, ok = z.names[index]; !ok {
			name = strconv.Itoa(index)
		}
	}
	return name
}

// refreshLocked lists the interfaces when the answers are old, or when now is set.
func (z *zones) refreshLocked(now bool) {
	if !now && z.names != nil && time.Since(z.dumped) < zoneLife {
		return
	}
	z.dumped = time.Now()
	z.names, z.indexes = map[int]string{}, map[string]int{}
	ifs, err := net.Interfaces()
	if err != nil {
		return // numbers still work
	}
	for _, i := range ifs {
		z.names[i.Index] = i.Name
		z.indexes[i.Name] = i.Index
	}
}
