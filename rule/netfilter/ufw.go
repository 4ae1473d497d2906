package netfilter

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// ufwNames are the files of /etc/ufw that hold rules, and /etc/default/ufw.
var ufwNames = []string{"before.rules", "after.rules", "user.rules", "before6.rules",
	"after6.rules", "user6.rules", "ufw"}

// UFWFiles returns the files of a directory like /etc/ufw that Import reads. The last one,
// /etc/default/ufw, has the policies; all may be missing but before.rules.
func UFWFiles(dir string) (files []string) {
	for _, name := range ufwNames[:6] {
		files = append(files, path.Join(dir, name))
	}
	return append(files, path.Join(dir, "..", "default", "ufw"))
}

// ufwName returns the name of a file of ufw, "" for others.
func ufwName(name string) string {
	if base := path.Base(name); slices.Contains(ufwNames, base) {
		return base
	}
	return ""
}

// ufwFiles are the files of ufw, which are one rule set only together.
type ufwFiles struct {
	files map[string]Source
}

func (u *ufwFiles) add(src Source) {
	if u.files == nil {
		u.files = map[string]Source{}
	}
	name := ufwName(src.Name)
	if name == "" {
		name = guessUFW(src.Text)
	}
	u.files[name] = src
}

// guessUFW returns the name of a file of ufw by what stands in it.
func guessUFW(text string) string {
	for _, f := range []struct{ mark, name string }{
		{"DEFAULT_INPUT_POLICY=", "ufw"}, {":ufw6-before-input", "before6.rules"},
		{":ufw6-after-input", "after6.rules"}, {":ufw6-user-input", "user6.rules"},
		{":ufw-user-input", "user.rules"}, {":ufw-before-input", "before.rules"},
	} {
		if strings.Contains(text, f.mark) {
			return f.name
		}
	}
	return "after.rules"
}

// policy returns a policy of /etc/default/ufw.
func (u *ufwFiles) policy(name, missing string) string {
	for l := range strings.Lines(u.files["ufw"].Text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), name+"="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return missing
}

// read builds the chains as ufw-init does, and reads the files into them.
func (u *ufwFiles) read(r *iptablesReader) error {
	if u.files == nil {
		return nil
	}
	if _, ok := u.files["before.rules"]; !ok {
		return errors.New("before.rules of ufw is missing, which lets known flows pass: give all " +
			"of its files, or the directory /etc/ufw")
	}
	if _, ok := u.files["ufw"]; !ok {
		r.set.note(Place{},
			"/etc/default/ufw was not read: its policies are taken to be ufw's own "+
				"(input and forward refused, output allowed)")
	}
	for _, f := range []struct {
		family int
		suffix string
	}{{ipv4, ""}, {ipv6, "6"}} {
		if _, ok := u.files["before"+f.suffix+".rules"]; !ok ||
			f.family == ipv6 && strings.EqualFold(u.policy("IPV6", "yes"), "no") {
			continue
		}
		r.force = f.family
		texts := []Source{{Name: "ufw-init", Text: u.primary(f.suffix)}}
		for _, name := range []string{"before", "after", "user"} {
			texts = append(texts, u.files[name+f.suffix+".rules"])
		}
		texts = append(texts, Source{Name: "ufw-init", Text: userJumps(f.suffix)})
		for _, src := range texts {
			if err := r.read(src); err != nil {
				return err
			}
		}
		r.force = 0
	}
	return nil
}

// directions are the parts of the names of ufw's chains, with the setting of each policy.
var directions = []struct{ name, chain, policy, missing string }{
	{"input", "INPUT", "DEFAULT_INPUT_POLICY", "DROP"},
	{"output", "OUTPUT", "DEFAULT_OUTPUT_POLICY", "ACCEPT"},
	{"forward", "FORWARD", "DEFAULT_FORWARD_POLICY", "DROP"},
}

// primary returns the chains that ufw makes before it reads its files.
func (u *ufwFiles) primary(suffix string) string {
	var b strings.Builder
	p := "ufw" + suffix
	b.WriteString("*filter\n")
	for _, d := range directions {
		policy := u.policy(d.policy, d.missing)
		base := policy
		if policy == "REJECT" {
			base = "DROP"
		}
		fmt.Fprintf(&b, ":%s %s [0:0]\n", d.chain, base)
		for _, part := range []string{"before-logging", "before", "after", "after-logging",
			"reject", "track"} {
			fmt.Fprintf(&b, ":%s-%s-%s - [0:0]\n-A %s -j %s-%s-%s\n", p, part, d.name, d.chain, p,
				part, d.name)
		}
		switch policy {
		case "REJECT":
			fmt.Fprintf(&b, "-A %s-reject-%s -j REJECT\n", p, d.name)
		case "ACCEPT":
			for _, proto := range []string{"tcp", "udp"} {
				fmt.Fprintf(&b, "-A %s-track-%s -p %s -m conntrack --ctstate NEW -j ACCEPT\n", p,
					d.name, proto)
			}
		}
		fmt.Fprintf(&b, ":%s-skip-to-policy-%s - [0:0]\n-A %s-skip-to-policy-%s -j %s\n", p,
			d.name, p, d.name, policy)
		fmt.Fprintf(&b, ":%s-user-%s - [0:0]\n", p, d.name)
	}
	fmt.Fprintf(&b, ":%s-logging-deny - [0:0]\n:%s-logging-allow - [0:0]\n", p, p)
	fmt.Fprintf(&b, ":%s-user-limit - [0:0]\n:%s-user-limit-accept - [0:0]\n", p, p)
	b.WriteString("COMMIT\n")
	return b.String()
}

// userJumps returns what ufw adds when it has read its files.
func userJumps(suffix string) string {
	var b strings.Builder
	b.WriteString("*filter\n")
	for _, d := range directions {
		fmt.Fprintf(&b, "-A ufw%s-before-%s -j ufw%s-user-%s\n", suffix, d.name, suffix, d.name)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
