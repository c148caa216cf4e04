package tools

var codeTools []*Tool
