// Package eyeballstest has what a dialer is tested and measured against: a DNS
// server that answers late, wrongly or not at all, and a simulated network on a
// TUN device whose hosts are slow, dead or refuse. Nothing here is imported by
// the product.
package eyeballstest
