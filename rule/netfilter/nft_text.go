package netfilter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// nftText writes a rule as nft would list it, for comments. What it does not know stays JSON.
func nftText(n *nftRule) string {
	var words []string
	for _, statement := range n.Expr {
		for word, arg := range statement {
			if t := statementText(word, arg); t != "" {
				words = append(words, t)
			}
		}
	}
	if n.Comment != "" {
		words = append(words, fmt.Sprintf("comment %q", n.Comment))
	}
	return strings.Join(words, " ")
}

func statementText(word string, arg any) string {
	m, _ := arg.(map[string]any)
	switch word {
	case "match":
		left, right := expression(m["left"]), expression(m["right"])
		if o, _ := m["op"].(string); o != "==" && o != "in" {
			return left + " " + o + " " + right
		}
		return left + " " + right
	case "counter":
		return ""
	case "jump", "goto":
		return word + " " + expression(m["target"])
	case "vmap":
		return expression(m["key"]) + " vmap " + expression(m["data"])
	case "reject":
		if m == nil {
			return word
		}
		return strings.TrimSpace(fmt.Sprintf("reject with %v %s", m["type"], orEmpty(m["expr"])))
	case "log":
		if p, ok := m["prefix"]; ok {
			return fmt.Sprintf("log prefix %q", p)
		}
		return word
	case "limit":
		return fmt.Sprintf("limit rate %v/%v", m["rate"], m["per"])
	}
	if arg == nil {
		return word
	}
	return word + " " + expression(arg)
}

func orEmpty(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// expression writes an expression of nft's JSON.
func expression(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		return joined(v, ", ", "{ ", " }")
	case map[string]any:
		if t, ok := objectText(v); ok {
			return t
		}
	case float64, bool:
		return fmt.Sprint(v)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func joined(list []any, separator, before, after string) string {
	var all []string
	for _, item := range list {
		if pair, ok := item.([]any); ok && len(pair) == 2 {
			all = append(all, expression(pair[0])+" : "+expression(pair[1]))
			continue
		}
		all = append(all, expression(item))
	}
	return before + strings.Join(all, separator) + after
}

func objectText(v map[string]any) (string, bool) {
	for word, arg := range v {
		m, _ := arg.(map[string]any)
		list, _ := arg.([]any)
		switch word {
		case "payload":
			return fmt.Sprintf("%v %v", m["protocol"], m["field"]), m["field"] != nil
		case "meta", "ct":
			key := fmt.Sprint(m["key"])
			if word == "meta" && slices.Contains([]string{"iif", "oif", "iifname", "oifname"},
				key) {
				return key, true
			}
			return word + " " + key, true
		case "fib":
			return fmt.Sprintf("fib %s %v", strings.Trim(expression(m["flags"]), "{ }"),
				m["result"]), true
		case "prefix":
			return fmt.Sprintf("%v/%v", m["addr"], m["len"]), true
		case "range":
			return joined(list, "-", "", ""), true
		case "set":
			if list == nil {
				return expression(arg), true
			}
			return joined(list, ", ", "{ ", " }"), true
		case "concat":
			return joined(list, " . ", "", ""), true
		case "elem":
			return expression(m["val"]), true
		case "&", "|":
			return joined(list, " "+word+" ", "", ""), true
		case "accept", "drop", "return", "continue":
			return word, true
		case "jump", "goto":
			return word + " " + expression(m["target"]), true
		}
	}
	return "", false
}
