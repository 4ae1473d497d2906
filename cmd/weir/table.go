package main

// verbs returns every verb in the order in which help lists them.
func verbs() []verb {
	return []verb{
		{"version", "[-j]", "Print the version of this binary", runVersion},
	}
}
