package rules

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// TestWarnings: what is doubtful about rules, on a host with eth0 and lo.
func TestWarnings(t *testing.T) {
	addr := netip.MustParsePrefix
	ifs := []firewall.Interface{{Index: 1, Name: "lo", Addrs: []netip.Prefix{addr("127.0.0.1/8")}},
		{Index: 2, Name: "eth0", Addrs: []netip.Prefix{addr("10.0.0.1/24"), addr("fe80::1/64")}}}
	ssh := &api.Session{From: netip.MustParseAddrPort("192.0.2.7:40000"),
		To: netip.MustParseAddrPort("10.0.0.1:22")}
	local := &api.Session{From: netip.MustParseAddrPort("127.0.0.1:40000"),
		To: netip.MustParseAddrPort("127.0.0.1:22")}
	zone := &api.Session{From: netip.MustParseAddrPort("[fe80::2%eth0]:40000"),
		To: netip.MustParseAddrPort("[fe80::1%eth0]:22")}
	const cut = "this session could not come in again: "
	for _, tc := range []struct {
		name, rules string
		session     *api.Session
		want        []string
	}{
		{"nothing", "add allow tcp from any to me 22 in keep-state", ssh, nil},
		{"unknown interface, once",
			"add 5 deny ip from any to any via eht0\nadd 6 deny ip from any to any xmit eht0\n" +
				"add 7 allow ip from any to any", nil,
			[]string{"rule 5: there is no interface eht0"}},
		{"patterns, pods and lo", "add allow ip from any to any via ppp*\n" +
			"add deny ip from any to any via pod:gone\nadd deny ip from any to any via lo", nil,
			nil},
		{"tables", "table admins create\ntable bad add 10.0.0.9\n" +
			"add 1 allow ip from table(admin) to any\nadd 2 deny ip from any to table(admins)\n" +
			"add 3 deny ip from table(bad) to any\nadd 4 deny ip from table(app=web) to any", nil,
			[]string{"rule 1: there is no table admin; weir fw table admin create",
				"rule 2: table admins is empty"}},
		{"nat", "nat 1 config if eth7 deny_in\nadd 1 nat 1 ip from any to any\nadd 2 nat 2 ip from any " +
			"to any\n", nil, []string{"rule 1: there is no interface eth7, so nat 1 has no address",
			"rule 2: there is no nat 2, so it drops what matches; weir fw nat 2 config if eth0 deny_in"}},
		{"nat that lets in", "nat 1 config if eth0\nadd 1 nat 1 ip from any to any out\n" +
			"add 2 nat 1 ip from 10.0.0.0/8 to any\nadd 3 nat 1 ip from any to any xmit eth0\n" +
			"add 4 nat 1 ip from any to me in\nadd 5 nat 1 ip from any to any\n", nil,
			[]string{"rule 4: what comes in from anywhere and nat 1 does not translate passes as it " +
				"is, as in ipfw; write deny_in, or disable one_pass if later rules " +
				"are to decide"}},
		{"nat that continues", "disable one_pass\nnat 1 config if eth0\n" +
			"add 1 nat 1 ip from any to any\n", nil, nil},
		{"pipes", "pipe 1 config bw 1Mbit/s\nadd 1 pipe 1 udp from any to any\nadd 2 pipe 2 tcp " +
			"from any to any\n", nil, []string{"rule 2: there is no pipe 2, so it drops what " +
			"matches; weir fw pipe 2 config bw 10Mbit/s"}},
		{"nothing enabled", "set disable 3\nadd 1 set 3 allow ip from any to any via eht0", nil,
			[]string{"no rule is enabled: everything is denied"}},
		{"no way in", "add 10 allow tcp from any to me 80", ssh,
			[]string{cut + "rule 65535 (deny " +
				"ip from any to any) refuses new connections from 192.0.2.7 to port 22"}},
		{"no way out",
			"add 10 allow tcp from any to me 22 in\nadd 20 deny tcp from any 22 to any out",
			ssh, []string{cut +
				"rule 20 (deny tcp from any 22 to any out) refuses the answers to " +
				"connections from 192.0.2.7 to port 22"}},
		{"an interface that is not guarded", "add deny ip from any to any", local, nil},
		{"link-local", "add 10 deny tcp from fe80::2 to any\nadd 20 allow ip from any to any", zone,
			[]string{cut + "rule 10 (deny tcp from fe80::2 to any) refuses new connections from " +
				"fe80::2 to port 22"}},
	} {
		b, _ := newManager(t)
		x := &Explainer{Manager: b, Options: firewall.DefaultOptions(),
			Interfaces: func() []firewall.Interface { return ifs },
			Labels:     func() map[string][]rule.TableEntry { return nil },
			Guards:     func(name string) bool { return name != "lo" },
			States:     func() iter.Seq2[firewall.State, error] { return nil }}
		done, err := x.Load(t.Context(), api.Load{Name: "rules", Text: tc.rules + "\n",
			Session: tc.session})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if !slices.Equal(done.Warnings, tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, strings.Join(done.Warnings, "\n"),
				strings.Join(tc.want, "\n"))
		}
		if again, err := x.SessionWarnings(api.WarningsQuery{Session: tc.session}); err != nil ||
			!slices.Equal(again.Warnings, done.Warnings) {
			t.Errorf("%s: asked again: %v, %v", tc.name, again.Warnings, err)
		}
	}
}

// TestEmptyRuleFileIsRefused: a file that was cut short must not lock its owner out.
func TestEmptyRuleFileIsRefused(t *testing.T) {
	b, e := newManager(t)
	for _, text := range []string{"", "# nothing\n", "flush\n", "table 1 add 10.0.0.1\n"} {
		if _, err := b.Load(t.Context(), api.Load{Name: "rules", Text: text}); err == nil ||
			!strings.Contains(err.Error(), "rules holds no rule") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if !passes(e, 22) {
		t.Error("a refused file is in force")
	}
}

// TestWarningsOfCall: rules of the number of a call, behind it, are not for what returns in ipfw.
func TestWarningsOfCall(t *testing.T) {
	set, err := rule.ParseFile("", "add 1 call 9 tcp from any to any\n"+
		"add 1 allow udp from any to any\nadd 2 count ip from any to any\n"+
		"add 2 call 9 ip from any to any\nadd 9 return\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"rule 1: after return the other rules of this number are tried, which ipfw " +
		"skips; give them other numbers"}
	if all := warnings(set, true, nil, nil); !slices.Equal(all, want) {
		t.Errorf("warned of %q", all)
	}
}

// TestWarningsOfFwd: what leaves cannot go to a socket of the host.
func TestWarningsOfFwd(t *testing.T) {
	set, err := rule.ParseFile("", "add 1 fwd 127.0.0.1,3128 tcp from any to any 80 in\n"+
		"add 2 fwd 192.0.2.9 ip from any to any out\nadd 3 fwd ::1 tcp from any to any 80\n"+
		"add 4 fwd 10.0.0.1 tcp from any to any 80\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	all := warnings(set, true, []firewall.Interface{{Index: 2, Name: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}, nil)
	for i, rule := range []string{"rule 3: ", "rule 4: "} {
		if len(all) != 2 || !strings.HasPrefix(all[i], rule+"what leaves and matches is dropped") {
			t.Errorf("warned of %q", all)
		}
	}
}

// TestWarningsOfTags: a tag of in is not there on out behind the host's stack.
func TestWarningsOfTags(t *testing.T) {
	for text, want := range map[string][]string{
		"add 1 count tag 5 ip from any to any in\nadd 2 deny ip from any to any out tagged 5\n": {
			"rule 2: a forwarded packet has its tags of in on out only if it goes straight to a " +
				"pod; one that goes through the host's stack has lost them"},
		"add 1 count tag 5 ip from any to any in\nadd 2 deny ip from any to any in tagged 5\n":   nil,
		"add 1 count tag 5 ip from any to any out\nadd 2 deny ip from any to any out tagged 5\n": nil,
		"add 1 deny ip from 0.0.0.0/0 to me 22\n": {
			"rule 1: 0.0.0.0/0 is every IPv4 address, and IPv6 is not denied; in ipfw it is any"},
		"add 1 deny ip4 from 0.0.0.0/0 to me 22\nadd 2 allow ip from 0.0.0.0/0 to me 80\n": nil,
	} {
		set, err := rule.ParseFile("", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if all := warnings(set, true, nil, nil); !slices.Equal(all, want) {
			t.Errorf("%s: warned of %q", text, all)
		}
	}
}
