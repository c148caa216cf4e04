package tools

var fileTools []*Tool
