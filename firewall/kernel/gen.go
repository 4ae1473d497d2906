package kernel

//go:generate go run ./constants ../../bpf/lib/consts.h consts.go
//go:generate go tool bpf2go -go-package kernel -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-parameter -Wno-sign-compare" -type header -type code -type pipe -type cond -type range -type span -type table_key -type event -type captured -type upper_key -type held_frame -type name_id_key -type name_id -type iface_address -type side -type key -type set -type tag_line -type clock_hand weir ../../bpf/weir.bpf.c
