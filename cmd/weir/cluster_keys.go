package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
)

// keysAnswer is what cluster keys -j prints.
type keysAnswer struct {
	Version int `json:"version"`
	// List counts the lists of keys; 0: none was made, and versions need no signature.
	List uint64      `json:"list"`
	Keys []keyAnswer `json:"keys"`
	Own  cluster.Key `json:"own"` // of this administrator
}

type keyAnswer struct {
	Key cluster.Key `json:"key"`
	Own bool        `json:"own,omitempty"`
}

// clusterKeysCommand lists and changes the keys of administrators.
func clusterKeysCommand(c *call) action {
	asJSON := c.json("")
	c.takes(0, -1)
	return func() error {
		var add, remove []cluster.Key
		if c.NArg() > 0 {
			keys, err := parseKeys(c.Args()[1:])
			switch word := c.Arg(0); {
			case err != nil:
				return c.wrong("%v", err)
			case word == "add":
				add = keys
			case word == "remove" && len(keys) > 0:
				remove = keys
			default:
				return c.wrong("add [KEY]... or remove KEY..., not %q", word)
			}
		}
		return c.asAdmin(func(ctx context.Context, a *administrator) error {
			list, err := admin.Keys(ctx, a)
			if err == nil && c.NArg() > 0 {
				list, err = c.changeKeys(ctx, a, add, remove)
			}
			if err != nil {
				return err
			}
			return c.printKeys(list, admin.KeyOf(a.key), *asJSON)
		})
	}
}

func parseKeys(texts []string) (keys []cluster.Key, err error) {
	for _, text := range texts {
		var k cluster.Key
		if err := k.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("%w of an administrator: weir cluster keys prints yours", err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (c *call) changeKeys(ctx context.Context, a *administrator, add, remove []cluster.Key) (
	cluster.KeyList, error) {
	sign, _, err := c.signer(a)
	if err != nil {
		return cluster.KeyList{}, err
	}
	list, signed, err := admin.ChangeKeys(ctx, a, sign, add, remove)
	if err != nil || signed {
		return list, err
	}
	_, head, err := admin.Hosts(ctx, a)
	if err != nil {
		return list, err
	}
	if err := c.signHead(ctx, a, head.Number, false); err != nil {
		return list, fmt.Errorf("the keys have changed, but version %v of the rules has no "+
			"signature of one: %w", head.Number, err)
	}
	return list, nil
}

func (c *call) printKeys(l cluster.KeyList, own cluster.Key, asJSON bool) error {
	a := keysAnswer{Version: 1, List: l.Count, Keys: []keyAnswer{}, Own: own}
	for _, k := range l.Keys {
		a.Keys = append(a.Keys, keyAnswer{k, k == own})
	}
	if asJSON {
		return printJSON(c.out, a)
	}
	for _, k := range a.Keys {
		if fmt.Fprint(c.out, k.Key); k.Own {
			fmt.Fprint(c.out, " (this administrator)")
		}
		fmt.Fprintln(c.out)
	}
	if len(a.Keys) == 0 {
		fmt.Fprintf(c.out, "none: versions of the rules need no signature\nthe key of this "+
			"administrator: %v\n", own)
	} else if !l.Has(own) {
		fmt.Fprintf(c.out, "not one of them, the key of this administrator: %v\n", own)
	}
	return nil
}

// clusterSignCommand signs the version of the rules that the store has.
func clusterSignCommand(c *call) action {
	changed := c.Bool("changed", false,
		"sign rules that this host does not enforce: you have read them")
	c.takes(1, 1)
	return func() error {
		number, err := parseNumber(c.Arg(0))
		if err != nil {
			return c.wrong("%v", err)
		}
		return c.asAdmin(func(ctx context.Context, a *administrator) error {
			if err := c.signHead(ctx, a, number, *changed); err != nil {
				return err
			}
			fmt.Fprintf(c.out, "version %v is signed with %v\n", number, admin.KeyOf(a.key))
			return nil
		})
	}
}

// signHead signs the version with this number. Without changed it has to be what this host
// enforces.
func (c *call) signHead(ctx context.Context, a *administrator, n cluster.Number,
	changed bool) error {
	sign, local, err := c.signer(a)
	if err != nil {
		return err
	}
	return admin.Sign(ctx, a, n, sign, local.Confirmed, changed)
}

// parseNumber reads a version such as 1.7.
func parseNumber(text string) (n cluster.Number, err error) {
	epoch, count, ok := strings.Cut(text, ".")
	if ok {
		if n.Epoch, err = strconv.ParseUint(epoch, 10, 64); err == nil {
			n.Count, err = strconv.ParseUint(count, 10, 64)
		}
	}
	if !ok || err != nil || n.String() != text {
		return n, errors.New(strconv.Quote(text) + " is not a version such as 1.7: weir node " +
			"list -j has it as rules")
	}
	return n, nil
}
