package main

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// readLine reads a line of the input, of at most max bytes, and returns it without its end. A
// signal that is to end the command ends the wait, too.
func (c *call) readLine(max int) (string, error) {
	type input struct {
		line string
		err  error
	}
	read := make(chan input, 1)
	go func() { // it waits until the process ends if no line comes
		line, err := bufio.NewReader(io.LimitReader(c.in, int64(max))).ReadString('\n')
		if errors.Is(err, io.EOF) && line != "" {
			err = nil
		}
		read <- input{strings.TrimRight(line, "\r\n"), err}
	}()
	select {
	case r := <-read:
		return r.line, r.err
	case <-c.ctx.Done():
		return "", errors.New("interrupted: nothing was changed")
	}
}

// agreed reads the answer to a question of the kind [y/N]. Without an answer it is no.
func (c *call) agreed() bool {
	answer, err := c.readLine(maxAnswer)
	answer = strings.TrimSpace(answer)
	return err == nil && (answer == "y" || answer == "yes")
}

// maxAnswer bounds an answer to a question, in bytes.
const maxAnswer = 1024
