// Package eyeballstest has an environment for tests and benchmarks of a dialer: a DNS server that
// answers late, wrongly or not at all, and a simulated network on a TUN device whose hosts are
// slow, dead or refuse connections. Only tests and benchmarks import it.
package eyeballstest
