package sandbox

// Paths are relative to WorkspaceDir or absolute in the sandbox. Every
// operation acts as AgentUID in the sandbox's own view. Names that are not
// UTF-8 are carried with the invalid bytes written as \xNN.

// ReadRequest reads a file, or a part of it.
type ReadRequest struct {
	Path     string `json:"path"`
	From     int64  `json:"from,omitempty"` // first line, from 1; negative from the end; 0 = start
	To       int64  `json:"to,omitempty"`   // last line, included; negative from the end; 0 = end
	MaxBytes int    `json:"max_bytes,omitempty"`
	As       string `json:"as,omitempty"` // auto, text, base64, image, hex
}

// ReadResult is what was read. Kind tells which of the fields hold.
type ReadResult struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"` // text, image, base64, hex, binary, directory
	Size       int64  `json:"size"`
	Mode       string `json:"mode"`           // "0644"
	Hash       string `json:"hash,omitempty"` // sha256:…, of the whole file
	Text       string `json:"text,omitempty"`
	From       int64  `json:"from,omitempty"` // first line of Text
	To         int64  `json:"to,omitempty"`
	Lines      int64  `json:"lines,omitempty"`       // of the whole file
	Encoding   string `json:"encoding,omitempty"`    // utf-8, utf-16le, …
	Ending     string `json:"line_ending,omitempty"` // lf, crlf, mixed, none
	Truncated  bool   `json:"truncated,omitempty"`
	NextLine   int64  `json:"next_line,omitempty"` // where to go on
	MediaType  string `json:"media_type,omitempty"`
	Data       []byte `json:"data,omitempty"`  // image bytes, bounded to 1568 pixels a side
	Width      int    `json:"width,omitempty"` // of the image in the file
	Height     int    `json:"height,omitempty"`
	Symlink    string `json:"symlink,omitempty"` // where a link pointed
	Suggestion string `json:"suggestion,omitempty"`
}

// WriteRequest writes a whole file, atomically, or appends.
type WriteRequest struct {
	Path       string `json:"path"`
	Content    []byte `json:"-"`                 // travels as the body, not in JSON
	Mode       string `json:"mode,omitempty"`    // octal; default kept, or 0644
	IfHash     string `json:"if_hash,omitempty"` // refuse unless the file still has this hash; "absent" = must not exist
	Append     bool   `json:"append,omitempty"`
	CreateDirs bool   `json:"create_dirs,omitempty"`
}

// WriteResult says what came of it, after size and digest matched.
type WriteResult struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	Hash    string `json:"hash"`
	Created bool   `json:"created"`
	Mode    string `json:"mode"`
}

// EditRequest replaces texts, all or none.
type EditRequest struct {
	Path   string `json:"path"`
	Edits  []Edit `json:"edits"`
	IfHash string `json:"if_hash,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// Edit replaces Old by New; Old must occur exactly Count times (default 1).
type Edit struct {
	Old   string `json:"old"`
	New   string `json:"new"`
	Count int    `json:"count,omitempty"`
}

// EditResult is the diff of what changed.
type EditResult struct {
	Path     string `json:"path"`
	Diff     string `json:"diff"`
	Replaced int    `json:"replaced"`
	Hash     string `json:"hash"`
	Changed  bool   `json:"changed"`
}

// ListRequest lists a folder.
type ListRequest struct {
	Path   string `json:"path,omitempty"`
	Glob   string `json:"glob,omitempty"`
	Depth  int    `json:"depth,omitempty"` // 1 = the folder itself
	Hidden bool   `json:"hidden,omitempty"`
	Ignore string `json:"ignore,omitempty"` // name of the ignore files; "none" for none
	Sort   string `json:"sort,omitempty"`   // name, size, time
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// ListResult is a page of entries.
type ListResult struct {
	Path    string   `json:"path"`
	Entries []Entry  `json:"entries"`
	Total   int      `json:"total"`
	Cursor  string   `json:"cursor,omitempty"` // set when there is more
	Notes   []string `json:"notes,omitempty"`  // what was skipped, and why
}

// Entry is one name in a listing.
type Entry struct {
	Path   string `json:"path"` // relative to ListResult.Path
	Type   string `json:"type"` // file, directory, symlink, fifo, socket, device
	Size   int64  `json:"size"`
	Mode   string `json:"mode"`
	Time   string `json:"time"` // RFC 3339
	Target string `json:"target,omitempty"`
}

// SearchRequest looks for a pattern in files.
type SearchRequest struct {
	Query     string `json:"query"` // RE2
	Literal   bool   `json:"literal,omitempty"`
	Path      string `json:"path,omitempty"`
	Glob      string `json:"glob,omitempty"`
	Context   int    `json:"context,omitempty"`
	Multiline bool   `json:"multiline,omitempty"`
	FilesOnly bool   `json:"files_only,omitempty"`
	Limit     int    `json:"limit,omitempty"` // matches
	Cursor    string `json:"cursor,omitempty"`
}

// SearchResult is a page of matches.
type SearchResult struct {
	Files   []FileMatches `json:"files"`
	Matches int           `json:"matches"` // in this page
	Scanned int           `json:"files_scanned"`
	Cursor  string        `json:"cursor,omitempty"`
	Notes   []string      `json:"notes,omitempty"`
}

// FileMatches are the matches in one file.
type FileMatches struct {
	Path  string      `json:"path"`
	Lines []MatchLine `json:"lines,omitempty"`
}

// MatchLine is a matching line, or one of its context.
type MatchLine struct {
	Line    int64  `json:"line"`
	Text    string `json:"text"`
	Context bool   `json:"context,omitempty"`
}

// TransferRequest hands a regular file over between AgentUID and BrowserUID by
// descriptor: import takes From in BrowserDir to To in the workspace, export
// the other way. Links are never followed; a taken name gets a number.
type TransferRequest struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Export   bool   `json:"export,omitempty"`
	MaxBytes int64  `json:"max_bytes,omitempty"`
}

// TransferResult names the file that was made.
type TransferResult struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Hash  string `json:"hash"`
}
