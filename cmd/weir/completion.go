package main

// completionCommand prints a script that asks this binary for completions.
func completionCommand(c *call) action {
	c.takes(1, 1)
	c.complete(fixed("bash", "zsh", "fish"))
	return func() error {
		switch top := c.cmd.Root(); c.Arg(0) {
		case "bash":
			return top.GenBashCompletionV2(c.out, true)
		case "zsh":
			return top.GenZshCompletion(c.out)
		case "fish":
			return top.GenFishCompletion(c.out, true)
		}
		return c.wrong("%q is not one of bash, zsh, fish", c.Arg(0))
	}
}
