// Command pinfold-guest is pid 1 of every sandbox. The engine starts it; it is
// of no use by hand.
package main

import (
	"os"

	"pinfold.dev/pinfold/sandbox/guest/server"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(server.Main(version)) }
