// Package eyeballstest has the environment in which a dialer is tested and measured: a DNS server
// that answers late, wrongly or not at all, and a simulated network on a TUN device whose hosts are
// slow, dead or refuse. The product does not import it.
package eyeballstest
