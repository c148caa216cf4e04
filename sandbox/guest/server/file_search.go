//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"sync"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxQuery      = 4096
	maxContext    = 20
	defaultSearch = 100
	maxSearch     = 1000
	maxFound      = 22_000  // characters of one answer, about
	maxLine       = 400     // bytes shown of a line
	searchers     = 2       // files scanned at one time
	searchAhead   = 32      // files between the walk and the answer
	maxSearchFile = 1 << 30 // larger files are not looked into
)

// query is a compiled search.
type query struct {
	re        *regexp.Regexp
	literal   []byte // what every match holds, or nothing
	only      bool   // literal is all there is to match
	multiline bool
	filesOnly bool
	context   int
}

// search answers a SearchRequest. One thread walks and opens as the agent;
// descriptors go to the scanners, whose findings are put back into the order
// of the walk.
func (f *files) search(ctx context.Context, r sandbox.SearchRequest) (sandbox.SearchResult, error) {
	res := sandbox.SearchResult{Files: []sandbox.FileMatches{}}
	q, err := compileQuery(r)
	if err != nil {
		return res, err
	}
	if r.Path == "" {
		r.Path = "."
	}
	root, err := f.locate(r.Path)
	if err != nil {
		return res, err
	}
	var from searchCursor
	if r.Cursor != "" {
		if err := decodeCursor(r.Cursor, &from); err != nil {
			return res, err
		}
		from.Path = decodeName(from.Path)
	}
	if r.Limit < 0 || r.Limit > maxSearch || r.Context < 0 || r.Context > maxContext {
		return res, sandbox.Errorf(sandbox.InvalidArgument, "Use cursor for more matches.", "limit goes to %d, context to %d", maxSearch, maxContext)
	}
	limit := r.Limit
	if limit == 0 {
		limit = defaultSearch
	}
	done, err := f.walking(ctx)
	if err != nil {
		return res, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &searching{q: q, from: from, turn: make(chan *found, searchAhead), work: make(chan *found), ctx: ctx}
	w := &walk{ctx: ctx, sorted: true, ignore: ".gitignore", visit: s.visit}
	if r.Glob != "" {
		if w.glob, err = parseGlob(decodeName(r.Glob)); err != nil {
			return res, err
		}
		w.hidden = w.glob.dotted()
	}
	if from.Path != "" {
		w.skip = func(dir []byte) bool {
			below := append(append([]byte{}, dir...), '/', 0xff)
			return comparePaths(below, from.Path) < 0
		}
	}
	var wg sync.WaitGroup
	for range searchers {
		wg.Go(func() {
			for fd := range s.work {
				fd.scan(ctx, q)
			}
		})
	}
	var failed error
	wg.Go(func() {
		defer close(s.turn)
		defer close(s.work)
		failed = f.as(sandbox.AgentUID, func() error { return f.searchFrom(r.Path, root, w, s) })
	})
	s.collect(&res, limit, cancel)
	for range s.turn { // whatever was under way when the page was full
	}
	wg.Wait()
	if failed != nil && !(res.Cursor != "" && errors.Is(failed, context.Canceled)) {
		return res, fileError("search", r.Path, failed)
	}
	res.Scanned = s.scanned
	res.Notes = append(w.notes(), s.notes()...)
	return res, nil
}

// searchFrom walks a folder, or takes a single file. It must run inside as.
func (f *files) searchFrom(asked, root string, w *walk, s *searching) error {
	fd, err := f.open(root, unix.O_RDONLY, 0)
	if err != nil {
		return f.suggest(fileError("search", asked, err), root)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		defer unix.Close(fd)
		return w.run(fd)
	case unix.S_IFREG:
		s.single = true
		return s.hand(fd, path.Base(root))
	}
	unix.Close(fd)
	return notRegular(asked, st.Mode)
}

func compileQuery(r sandbox.SearchRequest) (*query, error) {
	if r.Query == "" || len(r.Query) > maxQuery {
		return nil, sandbox.Errorf(sandbox.InvalidArgument, "Give what to look for.", "query: %d bytes, 1 to %d are taken", len(r.Query), maxQuery)
	}
	q := &query{multiline: r.Multiline, filesOnly: r.FilesOnly, context: r.Context}
	text := r.Query
	if r.Literal {
		text = regexp.QuoteMeta(text)
	}
	if r.Multiline {
		text = "(?m)" + text // ^ and $ at lines
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err == nil {
		q.re, err = regexp.Compile(text)
	}
	if err != nil {
		hint := "Use RE2 syntax (no look-around, no back-references), or set literal."
		return nil, sandbox.Errorf(sandbox.InvalidArgument, hint, "query: %v", err)
	}
	q.literal = []byte(required(tree.Simplify()))
	q.only = r.Literal
	if r.Literal {
		q.literal = []byte(r.Query)
	}
	return q, nil
}

// required returns the longest text that every match must hold, so that most
// files are judged by a plain search.
func required(t *syntax.Regexp) string {
	switch t.Op {
	case syntax.OpLiteral:
		if t.Flags&syntax.FoldCase == 0 {
			return string(t.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(t.Sub[0])
	case syntax.OpConcat:
		best := ""
		for _, s := range t.Sub {
			if l := required(s); len(l) > len(best) {
				best = l
			}
		}
		return best
	}
	return ""
}

// searchCursor is the last line that was given.
type searchCursor struct {
	Path string `json:"p"`
	Line int64  `json:"l"` // 0: the whole file was
}

// searching carries files from the walk to the scanners and to the answer.
type searching struct {
	ctx     context.Context
	q       *query
	from    searchCursor
	single  bool
	work    chan *found
	turn    chan *found // in the order of the walk
	scanned int
	binary  int
	special int
	large   int
	denied  int
	broken  int
}

// found is one file: its descriptor first, its matches when done is closed.
type found struct {
	path   string
	file   *os.File
	size   int64
	after  int64 // give only lines after this one
	done   chan struct{}
	lines  []sandbox.MatchLine
	count  int // matches
	bytes  int // of the lines kept
	binary bool
	more   bool // stopped at the bound of one answer
	err    error
}

func (s *searching) visit(dir int, name string, kind uint8, p []byte) error {
	switch kind {
	case unix.DT_REG:
	case unix.DT_DIR, unix.DT_LNK:
		return nil
	default:
		s.special++
		return nil
	}
	if c := comparePaths(p, s.from.Path); s.from.Path != "" && (c < 0 || (c == 0 && s.from.Line == 0)) {
		return nil
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		s.denied++
		return nil
	}
	return s.hand(fd, string(p))
}

// hand gives an open file to the scanners and takes it over.
func (s *searching) hand(fd int, p string) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxSearchFile {
		unix.Close(fd)
		if st.Size > maxSearchFile {
			s.large++
		} else {
			s.special++ // became something else since the listing
		}
		return nil
	}
	x := &found{path: p, file: os.NewFile(uintptr(fd), p), size: st.Size, done: make(chan struct{})}
	if p == s.from.Path || (s.single && s.from.Path != "") {
		x.after = s.from.Line
	}
	select {
	case s.turn <- x:
	case <-s.ctx.Done():
		x.file.Close()
		return s.ctx.Err()
	}
	select {
	case s.work <- x:
		return nil
	case <-s.ctx.Done():
		x.file.Close()
		x.err = s.ctx.Err()
		close(x.done)
		return x.err
	}
}

// collect takes findings in order until the page is full.
func (s *searching) collect(res *sandbox.SearchResult, limit int, cancel func()) {
	size := 0
	for x := range s.turn {
		<-x.done
		if s.ctx.Err() != nil && x.err != nil {
			continue
		}
		s.scanned++
		switch {
		case x.err != nil:
			s.broken++
			continue
		case x.binary:
			s.binary++
			continue
		case x.count == 0:
			continue
		}
		m := sandbox.FileMatches{Path: encodeName(x.path)}
		size += len(m.Path) + 16
		if s.q.filesOnly {
			res.Files = append(res.Files, m)
			res.Matches++
			if res.Matches >= limit || size > maxFound {
				res.Cursor = encodeCursor(searchCursor{Path: encodeName(x.path)})
				cancel()
				return
			}
			continue
		}
		last := int64(0)
		for _, l := range x.lines {
			size += len(l.Text) + 12
			if !l.Context {
				if res.Matches >= limit || (size > maxFound && res.Matches > 0) {
					x.more = true
					break
				}
				res.Matches++
				last = l.Line
			}
			m.Lines = append(m.Lines, l)
		}
		if last > 0 {
			for len(m.Lines) > 0 && m.Lines[len(m.Lines)-1].Context && m.Lines[len(m.Lines)-1].Line > last+int64(s.q.context) {
				m.Lines = m.Lines[:len(m.Lines)-1] // context of the match that no longer fits
			}
			res.Files = append(res.Files, m)
		}
		if x.more || res.Matches >= limit || size > maxFound {
			c := searchCursor{Path: encodeName(x.path), Line: last}
			if last == 0 {
				c.Line = x.after
			}
			res.Cursor = encodeCursor(c)
			cancel()
			return
		}
	}
}

func (s *searching) notes() []string {
	var out []string
	add := func(n int, format string) {
		if n > 0 {
			out = append(out, fmt.Sprintf(format, n))
		}
	}
	add(s.binary, "%d binary files skipped")
	add(s.special, "%d pipes, sockets or devices skipped")
	add(s.denied, "%d files could not be opened")
	add(s.broken, "%d files could not be read to their end")
	add(s.large, "%d files over 1 GiB skipped")
	return out
}
