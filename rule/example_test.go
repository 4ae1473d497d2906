package rule_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

const text = `
add 1 check-state
add pass tcp from any to me http,https setup keep-state
add deny ip from { 10.0.0.0:255.0.0.0 or table(bad) } to any // not from there
`

func Example() {
	set, err := rule.ParseFile("web.rules", text, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range set.Rules {
		fmt.Println(r)
	}
	program, err := rule.Compile(set, rule.CompileOptions{Default: op.ActionDeny, Strict: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(program.Rules), "slots, tables", program.Tables)
	// Output:
	// 1 check-state
	// 101 allow tcp from any to me 80,443 setup keep-state
	// 201 deny ip from { 10.0.0.0/8 or table(bad) } to any // not from there
	// 4 slots, tables [bad]
}

func ExampleErrors() {
	_, err := rule.ParseFile("web.rules",
		"add 10 allow tcp from any to any 80\nadd 20 allow tpc from any to 10.0.0.0/33\n", nil)
	var mistakes rule.Errors
	if errors.As(err, &mistakes) {
		fmt.Print(mistakes.Report())
	}
	// Output:
	// web.rules:2:14: unknown protocol "tpc"
	//     add 20 allow tpc from any to 10.0.0.0/33
	//                  ^^^
	//     hint: did you mean "tcp"?
}

func ExampleRuleset_Add() {
	var set rule.Ruleset
	for _, line := range []string{"deny ip from any to any", "50 allow ip from me to any",
		"count tcp from any to any"} {
		command, err := rule.ParseLine(line, nil)
		if err == nil {
			err = command.Apply(&set)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, r := range set.Rules {
		fmt.Println(r)
	}
	// Output:
	// 50 allow ip from me to any
	// 100 deny ip from any to any
	// 200 count tcp from any to any
}

func ExampleLint() {
	set, err := rule.ParseFile("test", `
10 allow tcp from 10.0.0.0/8 to any
20 deny tcp from 10.1.0.0/16 to any 22
30 allow icmp from any to any 80
`, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	findings, _, err := rule.Lint(set)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range findings {
		fmt.Println(strings.ReplaceAll(f.String(), ", ", ",\n"))
	}
	// Output:
	// rule 20 is never reached: rule 10 takes every packet that it would match,
	// and does the opposite
	// rule 30 never matches: its conditions exclude each other
}
