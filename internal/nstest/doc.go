// Package nstest makes throw-away networks: network namespaces connected by veth pairs, for tests
// and for the demo.
//
// A Lab is a set of namespaces that live and die together:
//
//	func TestPing(t *testing.T) {
//		lab := nstest.New(t)
//		a, b := lab.Node("a"), lab.Node("b")
//		lab.Join(a, "eth0", "10.0.0.1/24 fd00::1/64", b, "eth0", "10.0.0.2/24 fd00::2/64")
//		out, err := a.Command("ping", "-c1", "10.0.0.2").CombinedOutput()
//		...
//	}
//
// Addresses of both families can be used at once: duplicate address detection is off. Inside a
// node, Do runs a function, Command a program, and Listen, ListenPacket and DialContext make
// sockets.
//
// Eventually waits for what takes a moment, and Echo serves echo.
//
// Open is the same without a test around it, and returns errors instead of failing one.
//
// # Nothing is left behind
//
// Close ends every process that still runs inside, and removes the namespaces, and with them the
// links. New does so when the test ends, whether it passed, failed or panicked. The next Open
// removes what a killed process left: names carry the process id and the start time of the process
// that made them, and what belongs to no running process is removed.
//
// # Rights
//
// Namespaces need root. Root, New and Bpffs skip the test without it. With WEIR_CI=1 in the
// environment they fail it instead, so that a run that is meant to be complete cannot silently skip
// the larger half.
package nstest
