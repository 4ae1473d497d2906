// Command weir is as it should be.
package main

import (
	"fmt"
	"os"

	_ "github.com/weirnet/weir/agent"
	_ "github.com/weirnet/weir/internal/nstest"
)

func main() {
	fmt.Println("hello")
	os.Exit(1)
}
