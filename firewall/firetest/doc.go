// Package firetest is the treaty: what every engine must do. Twin is the slow twin, an interpreter of parsed rules that is
// written to be right and nothing else; engines are compared with it on random rules and packets.
package firetest
