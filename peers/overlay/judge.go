package main

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/overlay"
)

func newJudge() (overlay.Judge, error) {
	return func(_ firewall.Direction, packets [][]byte, pass []bool) {
		for i := range packets {
			pass[i] = true
		}
	}, nil
}
