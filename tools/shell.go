package tools

var shellTools []*Tool
