// Package nstest makes temporary networks: network namespaces connected by veth pairs, for tests
// and for the demo.
//
// A Lab is a set of namespaces that are made and removed together:
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
// Eventually waits until a condition is true, and Echo is an echo server.
//
// Open does the same outside of a test, and returns errors instead of failing the test.
//
// # Nothing is left behind
//
// Close ends every process that still runs inside, and removes the namespaces, and with them the
// links. New does so when the test ends, whether it passed, failed or panicked. The next Open
// removes namespaces that a killed process left behind. Their names contain the id and the start
// time of the process, and those of no running process are removed.
//
// # Privileges
//
// Namespaces need root. Root, New and Bpffs skip the test without it. With WEIR_CI=1 in the
// environment they fail it instead, so that a run that is meant to be complete cannot silently skip
// the larger half.
package nstest
