package prints

import "fmt"

func init() { fmt.Println("tests may print, but not like this") }
