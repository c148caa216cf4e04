package tools

import (
	"context"
	"fmt"
	"strings"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

type fileListInput struct {
	Path   string `json:"path,omitempty"`
	Glob   string `json:"glob,omitempty" doc:"src/**/*.{ts,tsx}; without /: in any folder."`
	Depth  int    `json:"depth,omitempty" doc:"Default 1, or the glob's."`
	Hidden bool   `json:"hidden,omitempty"`
	Ignore string `json:"ignore,omitempty" doc:"Default .gitignore; or none."`
	Sort   string `json:"sort,omitempty" enum:"name,size,time"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

type fileListOutput struct {
	Entries []sandbox.Entry `json:"entries"`
	Total   int             `json:"total" schema:"-"`
	Cursor  string          `json:"cursor,omitempty"`
	Notes   []string        `json:"notes,omitempty" schema:"-"`

	path string
}

func (o fileListOutput) Text() string {
	var b strings.Builder
	for _, e := range o.Entries {
		switch e.Type {
		case "directory":
			fmt.Fprintf(&b, "%s %10s %s %s/\n", e.Mode, "-", e.Time, e.Path)
		case "symlink":
			fmt.Fprintf(&b, "%s %10s %s %s -> %s\n", e.Mode, "link", e.Time, e.Path, e.Target)
		case "file":
			fmt.Fprintf(&b, "%s %10d %s %s\n", e.Mode, e.Size, e.Time, e.Path)
		default:
			fmt.Fprintf(&b, "%s %10s %s %s\n", e.Mode, e.Type, e.Time, e.Path)
		}
	}
	switch {
	case o.Total == 0:
		fmt.Fprintf(&b, "Nothing in %s.\n", o.path)
	case o.Cursor != "":
		fmt.Fprintf(&b, "%d of %d shown. Next page: cursor %s\n", len(o.Entries), o.Total, o.Cursor)
	}
	if len(o.Notes) > 0 {
		fmt.Fprintf(&b, "[%s]\n", strings.Join(o.Notes, "; "))
	}
	return b.String()
}

var fileList = define(Tool{
	Name:        "file_list",
	Title:       "List files",
	Description: `Lists a folder, or what matches a glob below it, with mode, size, time and link target; pages by cursor.`,
	Permission:  policies.FileRead,
	Hints:       Hints{ReadOnly: true, Idempotent: true},
	Set:         Core,
	Timeout:     fileTimeout,
}, func(in fileListInput) string { return orDot(in.Path) },
	func(ctx context.Context, s *Session, in fileListInput) (fileListOutput, error) {
		got, err := s.Sandbox.List(ctx, sandbox.ListRequest{Path: in.Path, Glob: in.Glob, Depth: in.Depth, Hidden: in.Hidden, Ignore: in.Ignore,
			Sort: in.Sort, Limit: in.Limit, Cursor: in.Cursor})
		return fileListOutput{path: got.Path, Entries: got.Entries, Total: got.Total, Cursor: got.Cursor, Notes: got.Notes}, err
	})

type fileSearchInput struct {
	Query     string `json:"query" doc:"RE2."`
	Literal   bool   `json:"literal,omitempty"`
	Path      string `json:"path,omitempty"`
	Glob      string `json:"glob,omitempty"`
	Context   int    `json:"context,omitempty" doc:"Lines around a match."`
	Multiline bool   `json:"multiline,omitempty"`
	FilesOnly bool   `json:"files_only,omitempty"`
	Limit     int    `json:"limit,omitempty"`
	Cursor    string `json:"cursor,omitempty"`
}

type fileSearchOutput struct {
	Files   []sandbox.FileMatches `json:"files"`
	Matches int                   `json:"matches" schema:"-"`
	Scanned int                   `json:"files_scanned" schema:"-"`
	Cursor  string                `json:"cursor,omitempty"`
	Notes   []string              `json:"notes,omitempty" schema:"-"`

	query string
}

func (o fileSearchOutput) Text() string {
	var b strings.Builder
	for i, f := range o.Files {
		if i > 0 && len(f.Lines) > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.Path + "\n")
		last := int64(0)
		for _, l := range f.Lines {
			if last > 0 && l.Line > last+1 && hasContext(f.Lines) {
				b.WriteString("--\n")
			}
			mark := ":"
			if l.Context {
				mark = "-"
			}
			fmt.Fprintf(&b, "%d%s%s\n", l.Line, mark, l.Text)
			last = l.Line
		}
	}
	switch {
	case len(o.Files) == 0 && o.Cursor == "":
		fmt.Fprintf(&b, "No match for %q in %d files.\n", clip(o.query), o.Scanned)
	case o.Cursor != "":
		fmt.Fprintf(&b, "\n%d matches shown, there may be more. Next page: cursor %s\n", o.Matches, o.Cursor)
	}
	if len(o.Notes) > 0 {
		fmt.Fprintf(&b, "[%s]\n", strings.Join(o.Notes, "; "))
	}
	return b.String()
}

func hasContext(lines []sandbox.MatchLine) bool {
	for _, l := range lines {
		if l.Context {
			return true
		}
	}
	return false
}

var fileSearch = define(Tool{
	Name:        "file_search",
	Title:       "Search in files",
	Description: `Finds lines in files, with numbers. Hidden (unless the glob names them), binary and git-ignored files are left out.`,
	Permission:  policies.FileRead,
	Hints:       Hints{ReadOnly: true, Idempotent: true},
	Set:         Core,
	Timeout:     fileTimeout,
}, func(in fileSearchInput) string { return orDot(in.Path) },
	func(ctx context.Context, s *Session, in fileSearchInput) (fileSearchOutput, error) {
		got, err := s.Sandbox.Search(ctx, sandbox.SearchRequest{Query: in.Query, Literal: in.Literal, Path: in.Path, Glob: in.Glob, Context: in.Context,
			Multiline: in.Multiline, FilesOnly: in.FilesOnly, Limit: in.Limit, Cursor: in.Cursor})
		return fileSearchOutput{Files: got.Files, Matches: got.Matches, Scanned: got.Scanned, Cursor: got.Cursor, Notes: got.Notes, query: in.Query}, err
	})

func orDot(path string) string {
	if path == "" {
		return "."
	}
	return path
}
