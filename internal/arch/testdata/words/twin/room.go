// Package twin has the words of another project.
package twin

// roomFor says whether there is a door.
func roomFor(hatchedHeir int) bool { return hatchedHeir > 0 }

// TwinHTTPDoor is no door, and it
// is told so.
type TwinHTTPDoor struct{}

func fine() string { return "nobody" } // there
// is no longer a problem: the mushroom of an outdoor building, a thousand rooftops
