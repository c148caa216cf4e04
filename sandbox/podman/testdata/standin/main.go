// Command standin takes the guest's place in tests of the engine: it reads the
// configuration line and echoes the link.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func run() error {
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	var c guest.Config
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	switch c.Env["STANDIN"] {
	case "deaf":
		_, err = io.Copy(io.Discard, in)
		return err
	case "die":
		return errors.New("told to die")
	}
	if c.Link == sandbox.LinkStdio {
		_, err = io.Copy(os.Stdout, in)
		return err
	}
	conn, err := net.Dial("unix", sandbox.LinkSocket)
	if err != nil {
		return err
	}
	_, err = io.Copy(conn, conn)
	return err
}
