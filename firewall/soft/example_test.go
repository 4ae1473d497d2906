package soft_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

func Example() {
	set, err := rule.ParseFile("web.rules", `
add 100 check-state
add 200 allow tcp from any to me 443 setup keep-state
`, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := rule.Compile(set, rule.CompileOptions{Strict: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fw, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fw.Close()
	me := netip.MustParsePrefix("192.0.2.1/24")
	if err := fw.SetInterfaces([]firewall.Interface{{Index: 1, Name: "eth0",
		Addrs: []netip.Prefix{me}}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := fw.Load(program); err != nil {
		fmt.Println(err)
		return
	}
	w := fw.Worker(0)
	for i, text := range []string{
		"tcp 198.51.100.7:4000 -> 192.0.2.1:443 flags S",
		"tcp 198.51.100.7:4000 -> 192.0.2.1:22 flags S",
	} {
		_, b, err := build.ParseText(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		in := firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1},
			Now: time.Duration(i) * time.Millisecond}
		v := w.Evaluate(&in, b)
		fmt.Println(v.Pass, v.Rule, v.Reason)
	}
	// Output:
	// true 200 rule
	// false 65535 rule
}
