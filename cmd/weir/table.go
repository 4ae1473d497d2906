package main

// verbs returns every verb in the order in which help lists them.
func verbs() []verb {
	return []verb{
		{"fw check", "[-j] FILE", "Parse and check a rule file, offline, without changing anything", runFwCheck},
		{"fw why", "[-j] [-f FILE] PACKET", "Say what would happen to a packet, which rule decides, and why the others do not", runFwWhy},
		{"doctor", "[-j]", "Try what this kernel can do for Weir and say what is lost where it cannot", runDoctor},
		{"version", "[-j]", "Print the version of this binary", runVersion},
	}
}
