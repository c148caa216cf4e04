//go:build linux

package server

import (
	"context"
	"errors"
	"path"
	"regexp"
	"regexp/syntax"
	"strings"
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
	folded    []byte // the same without regard to case: ASCII, in lower case
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
	tree = tree.Simplify()
	q.literal = []byte(required(tree, false))
	if fold := required(tree, true); len(q.literal) == 0 && plainName(fold) {
		q.folded = []byte(strings.ToLower(fold))
	}
	q.only = r.Literal
	if r.Literal {
		q.literal = []byte(r.Query)
	}
	return q, nil
}

// required returns the longest text that every match must hold, so that most
// files are judged by a plain search; with fold, of those without regard to case.
func required(t *syntax.Regexp, fold bool) string {
	switch t.Op {
	case syntax.OpLiteral:
		if (t.Flags&syntax.FoldCase != 0) == fold {
			return string(t.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(t.Sub[0], fold)
	case syntax.OpConcat:
		best := ""
		for _, s := range t.Sub {
			if l := required(s, fold); len(l) > len(best) {
				best = l
			}
		}
		return best
	}
	return ""
}
