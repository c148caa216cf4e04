package tools

import "slices"

// All returns every tool in its fixed order. The slice is the caller's.
func All() []*Tool {
	return slices.Concat(shellTools, codeTools, fileTools, browserTools, sessionTools)
}

// Of returns the tools of a set in their fixed order.
func Of(set Set) []*Tool {
	return slices.DeleteFunc(All(), func(t *Tool) bool { return t.Set > set })
}
