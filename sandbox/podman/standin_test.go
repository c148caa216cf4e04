package podman

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

// standInMain is the test binary in the guest's place, where a guest is wanted
// that misbehaves or only echoes: it reads the configuration line and copies
// the link to itself.
func standInMain() int {
	if err := standInRun(); err != nil {
		fmt.Fprintln(os.Stderr, "stand-in:", err)
		return 1
	}
	return 0
}

func standInRun() error {
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
