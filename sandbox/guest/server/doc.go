//go:build linux

// Package server is the guest: pid 1 of every sandbox. It runs commands, file
// work and kernels as sandbox.AgentUID and answers the one host that holds its
// token.
//
// Words. A call is one request on a stream. A tree is all processes that a
// command or kernel started, told by a supplementary group number that they
// cannot drop. A ring is the bounded memory of one output stream.
//
// Rules. pid 1 is uid 0 of the sandbox's user namespace with five capabilities
// and none over files: what touches files runs under asAgent. Nothing is run
// before the filter of seccomp.go holds on every thread. pid 1 reaps whatever
// ends. Nothing here trusts the image: neither its environment nor its files.
package server
