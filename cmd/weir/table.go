package main

// verbs returns every verb in the order in which help lists them.
func verbs() []verb {
	return []verb{
		{"up", "[--config FILE] [--rules FILE] [--iface GLOB]...", "Run the node in the foreground until it is stopped", runUp},
		{"down", "", "Stop the node, detach everything and remove every trace", runDown},
		{"status", "[-j] [--wait TIME]", "Say how the node is, and what is wrong", runStatus},
		{"doctor", "[-j] [--bundle FILE [--mask]]", "Try what this kernel can do for Weir and say what is lost where it cannot", runDoctor},
		{"demo", "[-j]", "Show the main job on this machine, in throw-away namespaces", runDemo},
		{"version", "[-j]", "Print the version of this binary", runVersion},
		{"fw show", "[-jacrStTd] [NUMBER]...", "List the rules with their counters", runFwShow},
		{"fw list", "[-jacrStTd] [NUMBER]...", "List the rules", runFwList},
		{"fw add", "[-q] RULE", "Add a rule", runFwDo},
		{"fw delete", "[-q] NUMBER|set N...", "Delete rules by number, range or set", runFwDo},
		{"fw zero", "[NUMBER]...", "Set the counters of all or some rules to 0", runFwDo},
		{"fw flush", "[-f]", "Delete all rules but those of set 31", runFwFlush},
		{"fw set", "show|disable N...|enable N...|swap A B|move [rule] A to B", "Switch sets of rules off and on, swap or fill them", runFwSet},
		{"fw table", "[-j] NAME|all list|create|destroy|add|delete|flush|lookup|info ...", "List and change tables of addresses", runFwTable},
		{"fw check", "[-j] FILE", "Parse and check a rule file, offline, without changing anything", runFwCheck},
		{"fw lint", "[-j] FILE", "Name the rules of a file that can never match, and those that take their packets", runFwLint},
		{"fw load", "[--confirm TIME] FILE", "Replace the whole rule set by a file, at once or not at all", runFwLoad},
		{"fw confirm", "", "Keep the rule set that is on trial", runFwConfirm},
		{"fw why", "[-j] [-f FILE] PACKET", "Say what would happen to a packet, which rule decides, and why the others do not", runFwWhy},
		{"fw replay", "[-jq] -f FILE [-w OUT] CAPTURE", "Judge every packet of a capture, offline", runFwReplay},
		{"fw states", "[-j]", "List the live states", runFwStates},
		{"flow watch", "[-j] [--since TIME [--past]] [--from FILE [-f RULES]] [FILTER]", "Tell what happens: conversations that begin and end, drops and their rules", runFlowWatch},
		{"flow top", "[-j] [-n ROWS] [--sort KEY] [--once] [WORD]", "Show who talks most and who is refused most, and keep it up to date", runFlowTop},
		{"flow capture", "-w FILE [-s BYTES] [-c N] [--rate N] [FILTER]", "Capture packets with the verdict on each, dropped ones included", runFlowCapture},
		{"page", "[--listen ADDRESS]", "Show the node in a browser: flows, refusals, rules, states, why", runPage},
		{"pod attach", "[--name NAME] [--label KEY=VALUE]... [--publish HOST:PORT]... [--addr ADDRESS]... [--mtu BYTES] NETNS", "Give a network namespace a network", runPodAttach},
		{"pod detach", "NAME|NETNS", "Take it away", runPodDetach},
		{"pod list", "[-j]", "List the containers with their addresses, labels, published ports and counters", runPodList},
		{"cni", "", "Speak with a container runtime; also when the binary is called weir-cni", runCNI},
		{"dial", "[-j] [--tls] [-4|-6] [--timeout TIME] HOST:PORT|URL", "Connect as a race and show it: questions, attempts, winner, times", runDial},
		{"proxy", "[--listen ADDRESS] [--users FILE] [--connect-timeout TIME] [--idle-timeout TIME] [--max-clients N] [-v]", "Give other programs that way to connect: SOCKS5 and HTTP on one port", runProxy},
	}
}
