package tools

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

var fileTools = []*Tool{fileRead, fileWrite, fileEdit, fileList, fileSearch}

const (
	fileTimeout = 30 * time.Second
	// maxText bounds a result's text; clients drop or cut longer ones.
	maxText = 29_000
	// readText is the default of max_bytes: what fits with room for a note.
	readText = 25_000
)

type fileReadInput struct {
	Path    string  `json:"path"`
	Lines   []int64 `json:"lines,omitempty" doc:"[first, last]; negative: from the end."`
	Numbers bool    `json:"numbers,omitempty"`
	As      string  `json:"as,omitempty" enum:"auto,text,base64,image,hex"`
	Max     int     `json:"max_bytes,omitempty"`
}

// fileReadOutput is what a client gets as data. Every property costs tokens in
// every conversation: what only the text says is not among them.
type fileReadOutput struct {
	Kind      string `json:"kind,omitempty"`
	Content   string `json:"text,omitempty"`
	Size      int64  `json:"size" schema:"-"`
	Hash      string `json:"hash,omitempty"`
	Lines     int64  `json:"total_lines,omitempty"`
	NextLine  int64  `json:"next_line,omitempty" schema:"-"`
	Truncated bool   `json:"truncated,omitempty"`
	Encoding  string `json:"encoding,omitempty" schema:"-"`
	Ending    string `json:"line_ending,omitempty" schema:"-"`
	Symlink   string `json:"symlink,omitempty" schema:"-"`
	Note      string `json:"note,omitempty" schema:"-"`

	path, mediaType string
	from, to        int64
	width, height   int
	image           *Image
}

// Text is the file's own text; a note follows only where something is missing
// or is not what it seems.
func (o fileReadOutput) Text() string {
	var notes []string
	switch o.Kind {
	case "directory":
		return o.path + " is a folder. " + o.Note
	case "image":
		return fmt.Sprintf("%s: %s, %d × %d pixels, %d bytes.", o.path, o.mediaType, o.width, o.height, o.Size)
	case "binary":
		what := "binary data"
		if o.mediaType != "" {
			what = o.mediaType
		}
		return fmt.Sprintf("%s: %s, %d bytes, %s. Its first bytes:\n%s%s", o.path, what, o.Size, o.Hash, o.Content, o.Note)
	}
	if o.Truncated && o.NextLine > 0 {
		notes = append(notes, fmt.Sprintf("lines %d–%d of %d; go on with lines [%d, %d]", o.from, o.to, o.Lines, o.NextLine, o.Lines))
	} else if o.Truncated {
		notes = append(notes, fmt.Sprintf("cut; the file has %d bytes", o.Size))
	}
	if o.Size == 0 {
		notes = append(notes, "the file is empty")
	}
	if o.Encoding == "unknown-8bit" {
		notes = append(notes, `bytes that are not UTF-8 are shown as \xNN`)
	}
	if o.Note != "" {
		notes = append(notes, o.Note)
	}
	if len(notes) == 0 {
		return o.Content
	}
	end := ""
	if o.Content != "" && !strings.HasSuffix(o.Content, "\n") {
		end = "\n"
	}
	return o.Content + end + "[" + strings.Join(notes, "; ") + "]"
}

func (o fileReadOutput) Images() []Image {
	if o.image == nil {
		return nil
	}
	return []Image{*o.image}
}

func (o fileReadOutput) Facts() Facts { return Facts{Bytes: o.Size, Digest: o.Hash} }

var fileRead = define(Tool{
	Name:  "file_read",
	Title: "Read a file",
	Description: `Returns a text file, or lines of it; images as images. Long files are cut and say where to go on.
Paths are relative to /workspace, or absolute.`,
	Permission: policies.FileRead,
	Hints:      Hints{ReadOnly: true, Idempotent: true},
	Set:        Minimal,
	Timeout:    fileTimeout,
}, func(in fileReadInput) string { return in.Path },
	func(ctx context.Context, s *Session, in fileReadInput) (fileReadOutput, error) {
		r := sandbox.ReadRequest{Path: in.Path, As: in.As, MaxBytes: in.Max}
		switch len(in.Lines) {
		case 0:
		case 2:
			r.From, r.To = in.Lines[0], in.Lines[1]
		default:
			return fileReadOutput{}, invalid("lines", "Give [first, last], as in [1, 50] or [-20, -1].", fmt.Sprintf("holds %d numbers, two are needed", len(in.Lines)))
		}
		if r.MaxBytes == 0 {
			r.MaxBytes = readText
		}
		if err := within("max_bytes", r.MaxBytes, 1, 28_000); err != nil {
			return fileReadOutput{}, err
		}
		got, err := s.Sandbox.ReadFile(ctx, r)
		if err != nil {
			return fileReadOutput{}, err
		}
		out := fileReadOutput{Kind: got.Kind, Content: got.Text, Size: got.Size, Hash: got.Hash, Lines: got.Lines, NextLine: got.NextLine,
			Truncated: got.Truncated, Encoding: got.Encoding, Ending: got.Ending, Symlink: got.Symlink, Note: got.Suggestion,
			path: got.Path, mediaType: got.MediaType, from: got.From, to: got.To, width: got.Width, height: got.Height}
		if len(got.Data) > 0 {
			out.image = &Image{MediaType: got.MediaType, Data: got.Data}
		}
		if in.Numbers && got.Kind == "text" && got.From > 0 {
			out.number()
		}
		return out, nil
	})

// within holds a number against its bounds. They stand here and not in the
// schema, for which every client pays.
func within(field string, n, least, most int) error {
	if n < least || n > most {
		return invalid(field, fmt.Sprintf("Give %d to %d.", least, most), fmt.Sprintf("%d is out of range", n))
	}
	return nil
}

// number puts line numbers before the lines and cuts what no longer fits.
func (o *fileReadOutput) number() {
	var b strings.Builder
	n := o.from
	for line := range strings.Lines(o.Content) {
		head := strconv.FormatInt(n, 10) + "\t"
		if b.Len()+len(head)+len(line) > maxText && b.Len() > 0 {
			o.Truncated, o.NextLine, o.to = true, n, n-1
			break
		}
		b.WriteString(head)
		b.WriteString(line)
		n++
	}
	o.Content = b.String()
}

type fileWriteInput struct {
	Path    string  `json:"path"`
	Content *string `json:"content,omitempty"`
	Base64  *string `json:"base64,omitempty"`
	Mode    string  `json:"mode,omitempty" doc:"Octal; else kept, or 0644."`
	IfHash  string  `json:"if_hash,omitempty" doc:"Refuse unless it still has it; absent: if it exists."`
	Append  bool    `json:"append,omitempty"`
	Dirs    *bool   `json:"create_dirs,omitempty" doc:"Default true."`
}

type fileWriteOutput struct {
	Path    string `json:"path,omitempty"`
	Bytes   int64  `json:"bytes"`
	Hash    string `json:"hash,omitempty"`
	Created bool   `json:"created" schema:"-"`
	Mode    string `json:"mode,omitempty" schema:"-"`

	appended bool
}

func (o fileWriteOutput) Text() string {
	verb := "Replaced"
	switch {
	case o.Created:
		verb = "Created"
	case o.appended:
		verb = "Appended to"
	}
	return fmt.Sprintf("%s %s: %d bytes, mode %s, %s", verb, o.Path, o.Bytes, o.Mode, o.Hash)
}

func (o fileWriteOutput) Facts() Facts { return Facts{Bytes: o.Bytes, Digest: o.Hash} }

var fileWrite = define(Tool{
	Name:        "file_write",
	Title:       "Write a file",
	Description: `Writes a whole file (content, or base64 for bytes), atomically, with its folders; or appends. To change a part use file_edit.`,
	Permission:  policies.FileWrite,
	Hints:       Hints{Destructive: true},
	Set:         Minimal,
	Timeout:     2 * time.Minute,
}, func(in fileWriteInput) string { return in.Path },
	func(ctx context.Context, s *Session, in fileWriteInput) (fileWriteOutput, error) {
		r := sandbox.WriteRequest{Path: in.Path, Mode: in.Mode, IfHash: in.IfHash, Append: in.Append, CreateDirs: in.Dirs == nil || *in.Dirs}
		switch {
		case (in.Content == nil) == (in.Base64 == nil):
			return fileWriteOutput{}, invalid("content", "Give content for text, or base64 for bytes.", "exactly one of content and base64 is needed")
		case in.Content != nil:
			r.Content = []byte(*in.Content)
		default:
			b, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "").Replace(*in.Base64))
			if err != nil {
				return fileWriteOutput{}, invalid("base64", "Use the standard alphabet with padding.", "is not base64: "+err.Error())
			}
			r.Content = b
		}
		got, err := s.Sandbox.WriteFile(ctx, r)
		return fileWriteOutput{Path: got.Path, Bytes: got.Bytes, Hash: got.Hash, Created: got.Created, Mode: got.Mode, appended: in.Append}, err
	})

type fileEditInput struct {
	Path   string     `json:"path"`
	Edits  []editArgs `json:"edits" doc:"In order; all or none."`
	IfHash string     `json:"if_hash,omitempty"`
	DryRun bool       `json:"dry_run,omitempty"`
}

type editArgs struct {
	Old   string `json:"old"`
	New   string `json:"new"`
	Count int    `json:"count,omitempty" doc:"Of old; default 1."`
}

type fileEditOutput struct {
	Path     string `json:"path,omitempty" schema:"-"`
	Changed  bool   `json:"changed"`
	Replaced int    `json:"replaced" schema:"-"`
	Diff     string `json:"diff,omitempty"`
	Hash     string `json:"hash,omitempty"`

	dry bool
}

func (o fileEditOutput) Text() string {
	switch {
	case !o.Changed:
		return fmt.Sprintf("%s is as it was: the edits undo each other.", o.Path)
	case o.dry:
		return fmt.Sprintf("Would replace %d in %s (nothing was written):\n%s", o.Replaced, o.Path, o.Diff)
	}
	return fmt.Sprintf("Replaced %d in %s:\n%s", o.Replaced, o.Path, o.Diff)
}

func (o fileEditOutput) Facts() Facts { return Facts{Digest: o.Hash} }

var fileEdit = define(Tool{
	Name:  "file_edit",
	Title: "Edit a file",
	Description: `Replaces exact texts in a file and returns the diff. A text that occurs another number of times than count is refused
with every place, or with the nearest text. Mode and line endings are kept.`,
	Permission: policies.FileWrite,
	Hints:      Hints{Destructive: true},
	Set:        Minimal,
	Timeout:    fileTimeout,
}, func(in fileEditInput) string { return in.Path },
	func(ctx context.Context, s *Session, in fileEditInput) (fileEditOutput, error) {
		r := sandbox.EditRequest{Path: in.Path, IfHash: in.IfHash, DryRun: in.DryRun}
		for _, e := range in.Edits {
			r.Edits = append(r.Edits, sandbox.Edit{Old: e.Old, New: e.New, Count: e.Count})
		}
		got, err := s.Sandbox.EditFile(ctx, r)
		return fileEditOutput{Path: got.Path, Changed: got.Changed, Replaced: got.Replaced, Diff: got.Diff, Hash: got.Hash, dry: in.DryRun}, err
	})
