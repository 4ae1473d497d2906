package kernel

import "slices"

// spread divides the flows of a service among n of its backends: each gets as many slots as
// another, or one more. As few slots as possible change hands. held says whose a slot was, -1 if
// that backend gets no flows any more.
func spread(held [serviceSlots]int, n int) (slots [serviceSlots]uint8) {
	if n == 0 {
		return slots
	}
	has := make([]int, n)
	for _, b := range held {
		if b >= 0 {
			has[b]++
		}
	}
	// Those with most slots keep the one more.
	most, order := make([]int, n), make([]int, n)
	for b := range order {
		order[b] = b
	}
	slices.SortStableFunc(order, func(a, b int) int { return has[b] - has[a] })
	for rank, b := range order {
		most[b] = serviceSlots / n
		if rank < serviceSlots%n {
			most[b]++
		}
	}
	clear(has)
	var free []int
	for i, b := range held {
		if b < 0 || has[b] == most[b] {
			free = append(free, i)
			continue
		}
		has[b]++
		slots[i] = uint8(b)
	}
	b := 0
	for _, i := range free {
		for has[b] == most[b] {
			b = (b + 1) % n
		}
		has[b]++
		slots[i] = uint8(b)
		b = (b + 1) % n
	}
	return slots
}
