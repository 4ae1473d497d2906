package prints

import (
	"fmt"
	"log"
	sys "os"
)

type Exported struct{}

func (Exported) Method() {}

func (Exported) String() string { return "needs no comment" }

const Constant = 1

// Fine is documented.
func Fine() {}

func Loud() {
	fmt.Println("x")
	fmt.Fprintln(sys.Stdout, "x")
	println("x")
	log.Fatal("x")
	sys.Exit(1)
	fmt.Sprint("x")
	sys.Getpid()
}

// shown had another name.
type hidden struct{}

func (hidden) Method() {}

func init() {}
