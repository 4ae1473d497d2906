// Package testrand gives tests their random input.
package testrand

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"testing"
	"time"
)

// Variable is the environment variable that chooses the random input of tests.
const Variable = "WEIR_SEED"

// Seed returns the seed of a test's random input. It is the same in every run, by the name of the
// test: a test that passed does not fail by chance. WEIR_SEED=random draws another one, to look for
// input that no run had so far; WEIR_SEED=N plays one again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := choose(os.Getenv(Variable), t.Name(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d: %s=%d plays it again", seed, Variable, seed)
	return seed
}

// choose returns the seed of a test for a value of the variable.
func choose(value, test string, now time.Time) (uint64, error) {
	switch value {
	case "":
		h := fnv.New64a()
		h.Write([]byte(test))
		return h.Sum64(), nil
	case "random":
		return uint64(now.UnixNano()), nil
	}
	seed, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: give a number, or the word random", Variable, value)
	}
	return seed, nil
}
