package tools

var browserTools []*Tool

// Browser is what handlers need of a session's browser; browser.Browser has it.
type Browser interface{}
