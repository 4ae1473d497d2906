package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// The CPU of all that the server does, and that of its clients.
const (
	serverCPU = 0
	loadCPU   = 1
)

// split gives the server and its clients a CPU each, as a network card that steers packets would.
// What comes in is worked on where it is for, not where a pair of veths happens to be written to.
// So the server's CPU time is the server's.
func (b *bench) split() error {
	workers, err := b.workers()
	if err != nil {
		return err
	}
	for _, pid := range workers {
		if err := pinTask(pid, serverCPU); err != nil {
			return err
		}
	}
	return errors.Join(steer(b.server, serverCPU), steer(b.client, loadCPU))
}

// steer has packets that a node receives worked on by one CPU. The node sees its own interfaces in
// a sysfs of its own alone.
func steer(n *nstest.Node, cpu int) error {
	script := fmt.Sprintf("mount -t sysfs sysfs /sys && echo %x "+
		">/sys/class/net/eth0/queues/rx-0/rps_cpus", 1<<cpu)
	if out, err := n.Command("unshare", "--mount", "sh", "-c",
		script).CombinedOutput(); err != nil {
		return fmt.Errorf("steer packets: %w: %s", err, out)
	}
	return nil
}

func pinTask(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(pid, &set)
}

// workers returns the process ids of nginx's workers.
func (b *bench) workers() ([]int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.nginx))
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// serverTime returns the CPU time in ns that the server has taken. It is that of its workers, with
// the packets that are worked on in their name, and of the kernel's own thread for packets on their
// CPU.
func (b *bench) serverTime() (float64, error) {
	pids, err := b.workers()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, pid := range append(pids, b.softirqd) {
		s, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseFloat(strings.Fields(string(s))[0], 64)
		if err != nil {
			return 0, err
		}
		total += ns
	}
	return total, nil
}

// softirqdOf returns the process id of a CPU's thread for packets.
func softirqdOf(cpu int) (int, error) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, d := range procs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if comm, err := os.ReadFile("/proc/" + d.Name() + "/comm"); err == nil &&
			string(comm) == fmt.Sprintf("ksoftirqd/%d\n", cpu) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no ksoftirqd of CPU %d", cpu)
}
