package main

// verbs returns every verb in the order in which help lists them.
func verbs() []verb {
	return []verb{
		{"fw check", "[-j] FILE", "Parse and check a rule file, offline, without changing anything", runFwCheck},
		{"fw why", "[-j] [-f FILE] PACKET", "Say what would happen to a packet, which rule decides, and why the others do not", runFwWhy},
		{"dial", "[-j] [--tls] [-4|-6] [--timeout TIME] HOST:PORT|URL", "Connect as a race and show it: questions, attempts, winner, times", runDial},
		{"proxy", "[--listen ADDRESS] [--users FILE]", "Give other programs that way to connect: SOCKS5 and HTTP on one port", runProxy},
		{"doctor", "[-j]", "Try what this kernel can do for Weir and say what is lost where it cannot", runDoctor},
		{"version", "[-j]", "Print the version of this binary", runVersion},
	}
}
