module github.com/weirnet/weir

go 1.26
