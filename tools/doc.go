// Package tools is the catalogue: one declaration per tool, in the file of its
// family, with its handler and the small interfaces that handlers need.
//
// A [Tool] is a value. [All] returns every tool in a fixed order. A handler
// turns an input into a call on the session's sandbox or browser and the
// answer into an output; it does not log, journal, ask the policy, set
// deadlines or render. Errors are worded here once, in errors.go.
package tools
