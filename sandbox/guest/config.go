// Package guest is the protocol between host and guest, and its host side.
//
// The engine starts the guest binary as pid 1 and writes one [Config] line to
// its stdin; the guest then serves one byte stream, on which [Connect] speaks.
// Everything the guest says is hostile: sizes are bounded and decoding is
// strict on this side.
package guest

import "pinfold.dev/pinfold/sandbox"

// Version of the protocol. A guest of another major number is refused.
const Version = 1

// Config is the first line on the guest's stdin, JSON and a newline, at most
// 64 KiB. With LinkStdio the stream follows it on stdin and stdout; with
// LinkUnix the guest dials sandbox.LinkSocket. The guest writes its own log to
// stderr.
type Config struct {
	Version         int               `json:"version"`
	Token           string            `json:"token"` // proves each side to the other; never in an environment
	Link            sandbox.Link      `json:"link"`
	Isolation       sandbox.Isolation `json:"isolation"`
	Limits          sandbox.Limits    `json:"limits"` // those a guest holds itself (rlimits)
	NestedSandboxes bool              `json:"nested_sandboxes,omitempty"`
	Env             map[string]string `json:"env,omitempty"`
	KeepMS          int64             `json:"keep_ms,omitempty"` // wait so long for a redial; 0 = end 2 s after the link is lost
}
