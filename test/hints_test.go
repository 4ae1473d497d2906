package test

import (
	"strings"
	"testing"
)

// wrongLines are command lines that fail, each with a part of the hint that says what to do next.
// NEXT is a key of another node.
var wrongLines = []struct{ line, hint string }{
	{"fw add nonsense", "such as allow, deny"},
	{"fw add allow nonsense from any to any", "such as tcp, udp"},
	{"fw delete 4711", "weir fw list"},
	{"fw zero 4711", "weir fw list"},
	{"fw show 4711", "weir fw list"},
	{"fw set move rule 4711 to 3", "weir fw list"},
	{"fw pipe 4711 delete", "weir fw pipe show"},
	{"fw pipe 5 show", "weir fw pipe show"},
	{"fw nat 4711 delete", "weir fw nat show"},
	{"fw nat 5 show", "weir fw nat show"},
	{"fw table nosuch list", "weir fw table all list"},
	{"fw table nosuch flush", "weir fw table all list"},
	{"fw table known create", "missing"},
	{"fw table known create file /nowhere", "weir fw table known destroy"},
	{"fw table known delete 192.0.2.1", "weir fw table known list"},
	{"fw confirm", "weir fw load FILE --confirm 30s"},
	{"fw revert", "weir fw load FILE --confirm 30s"},
	{"fw load /nowhere/rules", "nowhere does not exist in /"},
	{"fw why tcp a", "'in via eth0 tcp"},
	{"fw why out via eth9 tcp 192.0.2.1:1 -> 192.0.2.2:2", "ip link"},
	{"fw why -f good nonsense", "'in via eth0 tcp"},
	{"fw replay -f good garbage", "tcpdump -w FILE"},
	{"fw replay -f good /nowhere", "nowhere does not exist in /"},
	{"flow watch --from garbage", "weir flow watch -j"},
	{"flow watch --from /nowhere", "nowhere does not exist in /"},
	{"flow capture -w /nowhere/x", "nowhere does not exist in /"},
	{"import garbage", "iptables-save > FILE"},
	{"flow watch --from garbage from table(bad)", "name addresses"},
	{"import /usr", "/etc/ufw"},
	{"ipfw set 77 list", "from 0 to 31"},
	{"ipfw table known lookup", "lookup ADDRESS"},
	{"import /nowhere", "nowhere does not exist in /"},
	{"doctor --bundle /nowhere/x.tgz", "nowhere does not exist in /"},
	{"up --config /nowhere", "nowhere does not exist in /"},
	{"up --iface eth0", "weir status"},
	{"proxy --listen nonsense", "127.0.0.1:1080"},
	{"proxy --users /nowhere", "nowhere does not exist in /"},
	{"proxy --hash ann", "weir proxy --hash ann < FILE"},
	{"panic --end", "weir status"},
	{"peer add b --key K --pods 10.99.0.0/24", "weir peer key"},
	{"peer add b --key NEXT --pods 10.88.1.0/25", "weir peer key -j"},
	{"peer add b --key NEXT --pods 10.99.0.0/24 --psk /nowhere", "nowhere does not exist in /"},
	{"peer add b --key NEXT --pods 10.99.0.0/24 --encrypt=false", "--endpoint ADDRESS:51820"},
	{"peer add b --key NEXT --pods 10.99.0.0/24 --endpoint b.example", "b.example:51820"},
	{"peer remove nosuch", "weir peer list"},
	{"pod detach nosuch", "weir pod list"},
	{"service add web 127.0.0.1:80 app=web", "10.200.0.10"},
	{"service remove nosuch", "weir service list"},
	{"ipfw delete 4711", "weir fw list"},
	{"ipfw /nowhere", "nowhere does not exist in /"},
	{"cluster accept", "weir join"},
	{"bogus", "weir help"},
	{"fw bogus", "one of "},
	{"fw list --nope", "weir fw list ["},
	{"flow top --sort bogus", "weir flow top ["},
	{"up --confirm nonsense", "weir up ["},
	{"page --listen nonsense", "weir page ["},
	{"completion tcsh", "weir completion bash|zsh|fish"},
}

// TestErrorsSayWhatToDoNext: a command that fails says what is wrong and, in a hint, what to do.
func TestErrorsSayWhatToDoNext(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	config := p.file("etc/weir/weir.toml", "[pods]\nranges = [\"10.88.1.0/24\"]\n[overlay]\n")
	p.start("--config", config, "--iface", "eth0")
	p.weir("fw", "table", "known", "create")
	files := strings.NewReplacer(" good", " "+p.file("good", "add allow ip from any to any\n"),
		" garbage", " "+p.file("garbage", "garbage\n"), "NEXT", strings.Repeat("B", 42)+"A=")
	for _, c := range wrongLines {
		out, stderr, err := p.try(strings.Fields(files.Replace(c.line))...)
		hint := ""
		for line := range strings.Lines(stderr) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "hint: "); ok {
				hint += text + "\n"
			}
		}
		if err == nil || !strings.Contains(hint, c.hint) {
			t.Errorf("weir %s: %v, the hint should say %q\n%s%s", c.line, err, c.hint, out, stderr)
		}
	}
}

// TestNoNodeHint: without a node, what needs one says how to start it.
func TestNoNodeHint(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, line := range []string{"status", "fw list", "fw add allow ip from any to any",
		"fw confirm", "fw revert", "flow top", "pod list", "peer list", "service list",
		"panic --end"} {
		if _, stderr, err := p.try(strings.Fields(line)...); err == nil ||
			!strings.Contains(stderr, "no node is running") ||
			!strings.Contains(stderr, "\nhint: start one: weir up") {
			t.Errorf("weir %s: %v\n%s", line, err, stderr)
		}
	}
}
