package tools

// Control is what the session family needs; the registry in mcp has it.
type Control interface{}

var sessionTools []*Tool
