package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/configfile"
)

// The names of the checks that decide and Probe treat specially.
const (
	checkPrivilege = "privilege"
	checkTCX       = "tcx"
	checkClsact    = "clsact"
)

// checks lists the features that Weir uses of a kernel.
func checks(pins string, files []string) []check {
	return []check{
		{"kernel", true, "older kernels do not have all that Weir needs, and are not tested",
			"run a kernel of 6.1 or later (Debian 12 has it)", kernelVersion},
		{checkPrivilege, true,
			"only root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON together, may guard an interface",
			"run as root", privilege},
		{"bpf maps", true, "there is nowhere to keep rules and states", "",
			eachMap(ebpf.Array, ebpf.Hash, ebpf.PerCPUArray)},
		{"tc programs", true, "no packet can be evaluated", "", program(ebpf.SchedCLS)},
		{"bpffs", true, "enforcement would end with the agent", "mount -t bpf bpf /sys/fs/bpf",
			bpffs(pins)},
		{checkTCX, false, "clsact is used instead; other tc users can push Weir aside", "", tcx},
		{checkClsact, false, "tcx is the only way to attach", "", clsact},
		{"BTF", true, "the programs cannot be relocated for this kernel (CO-RE)", "",
			fileExists("/sys/kernel/btf/vmlinux")},
		{"lpm tries", true, "there is nowhere to keep tables of prefixes", "",
			eachMap(ebpf.LPMTrie)},
		{"bpf_loop", true, "rules cannot be evaluated", "", helper(asm.FnLoop)},
		{"own programs", true, "no interface can be guarded",
			"report this line, with the output of uname -r", ownPrograms},
		{"timers", false,
			"the agent has to sweep old states away; without an agent they stay until their " +
				"entry is needed", "",
			helper(asm.FnTimerInit)},
		{"ring buffer", false, "no live events; counters and states still work", "",
			eachMap(ebpf.RingBuf)},
		{"coarse clock", false,
			"the exact clock is read instead, some nanoseconds slower per packet", "",
			helper(asm.FnKtimeGetCoarseNs)},
		{"redirect_peer", false, "packets for pods take the slow path through the host", "",
			helper(asm.FnRedirectPeer)},
		{"redirect_neigh", false, "packets of pods take the slow path through the host", "",
			helper(asm.FnRedirectNeigh)},
		{"netkit", false, `pods cannot have it ([pods] link = "netkit"); they have a veth`,
			"run a kernel of 6.12 or later with CONFIG_NETKIT (Debian 13 has it)", netkit},
		{"fib lookup", false,
			"verrevpath, versrcreach, antispoof and the fast path of pods do not work", "",
			helper(asm.FnFibLookup)},
		{"XDP", false, "floods are dropped later, in tc", "", program(ebpf.XDP)},
		{"SYN cookies", false,
			"in a flood of SYNs half-open connections evict each other, and clients far away " +
				"may not get through",
			"run a kernel of 6.8 or later, with sysctl net.ipv4.tcp_syncookies=1", synCookies},
		{"JIT", false, "programs are interpreted, several times slower",
			"sysctl net.core.bpf_jit_enable=1", jit},
		{"sock_diag", false, "TCP connections that are open when Weir starts cannot be adopted",
			"modprobe -a inet_diag tcp_diag", sockDiag},
		{"namespaces", false, "weir demo cannot run", "", namespaces},
		{"own files", false, "who can change them decides what this host lets in",
			"let only root write them and the directories above them", ownFiles(files)},
	}
}

// ownFiles is the check that only root can change files.
func ownFiles(files []string) func() (string, error) {
	return func() (string, error) {
		var all []string
		for _, f := range files {
			if w := configfile.Warning(f); w != "" {
				all = append(all, w)
			}
		}
		if all != nil {
			return "", errors.New(strings.Join(all, ", "))
		}
		return "only root can change them", nil
	}
}

func kernelVersion() (string, error) {
	text := release()
	fields := strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if len(fields) < 2 {
		return "", fmt.Errorf("cannot read the version %q", text)
	}
	major, _ := strconv.Atoi(fields[0])
	minor, _ := strconv.Atoi(fields[1])
	if major < 6 || major == 6 && minor < 1 {
		return "", fmt.Errorf("%s is older than 6.1", text)
	}
	return text, nil
}

func privilege() (string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return "", err
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if has(unix.CAP_SYS_ADMIN) && has(unix.CAP_NET_ADMIN) {
		return "CAP_SYS_ADMIN and CAP_NET_ADMIN", nil
	}
	if has(unix.CAP_BPF) && has(unix.CAP_NET_ADMIN) && has(unix.CAP_PERFMON) {
		return "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", nil
	}
	return "", fmt.Errorf("uid %d without the capabilities", os.Geteuid())
}

func eachMap(types ...ebpf.MapType) func() (string, error) {
	return func() (string, error) {
		for _, t := range types {
			if err := features.HaveMapType(t); err != nil {
				return "", err
			}
		}
		return "", nil
	}
}

func program(t ebpf.ProgramType) func() (string, error) {
	return func() (string, error) { return "", features.HaveProgramType(t) }
}

func helper(f asm.BuiltinFunc) func() (string, error) {
	return func() (string, error) { return "", features.HaveProgramHelper(ebpf.SchedCLS, f) }
}

// bpffs looks for a bpf file system under the nearest existing directory above the pins; where none
// is mounted, `weir up` will mount one if the kernel knows it.
func bpffs(pins string) func() (string, error) {
	return func() (string, error) {
		for dir := pins; ; dir = filepath.Dir(dir) {
			var s unix.Statfs_t
			err := unix.Statfs(dir, &s)
			if err == nil && s.Type == unix.BPF_FS_MAGIC {
				return "mounted, " + dir, nil
			}
			if err == nil || dir == "/" {
				break
			}
		}
		known, err := os.ReadFile("/proc/filesystems")
		if err != nil {
			return "", err
		}
		if !strings.Contains(string(known), "\tbpf\n") {
			return "", fmt.Errorf("this kernel has no bpf file system")
		}
		return "not mounted; weir up will mount it", nil
	}
}

func synCookies() (string, error) {
	why, err := kernel.LacksCookies()
	if err == nil && why != "" {
		err = errors.New(why)
	}
	return "", err
}

func jit() (string, error) { return jitSetting("/proc/sys/net/core/bpf_jit_enable") }

// jitSetting reads the kernel's setting, which only the first network namespace shows.
func jitSetting(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "not known: only the first network namespace shows it", nil
	}
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(string(text)) == "0" {
		return "", fmt.Errorf("net.core.bpf_jit_enable is 0")
	}
	return "", nil
}
