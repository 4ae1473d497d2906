// Package eyeballstest has an environment for tests and benchmarks of a dialer. It has a DNS server
// that answers late, wrongly or not at all. It also has a simulated network on a TUN device whose
// hosts are slow, dead or refuse connections. Only tests and benchmarks import it.
package eyeballstest
