//go:build linux

package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	defaultList = 200
	maxList     = 1000
	maxPage     = 20_000 // characters of a page, about
)

// list answers a ListRequest. It keeps one page in memory, however many entries
// there are: each call walks again and keeps the smallest after the cursor.
func (f *files) list(ctx context.Context, r sandbox.ListRequest) (sandbox.ListResult, error) {
	if r.Path == "" {
		r.Path = "."
	}
	res := sandbox.ListResult{Path: r.Path, Entries: []sandbox.Entry{}}
	path, err := f.locate(r.Path)
	if err != nil {
		return res, err
	}
	if r.Limit < 0 || r.Limit > maxList || r.Depth < 0 || r.Depth > maxWalkDepth {
		return res, sandbox.Errorf(sandbox.InvalidArgument, "Use cursor for more entries, and path for deeper ones.", "limit goes to %d, depth to %d", maxList, maxWalkDepth)
	}
	p := &page{sort: r.Sort, limit: r.Limit}
	if p.limit == 0 {
		p.limit = defaultList
	}
	switch r.Sort {
	case "":
		p.sort = "name"
	case "name", "size", "time":
	default:
		return res, sandbox.Errorf(sandbox.InvalidArgument, "Use name, size or time.", "sort: %q is not known", short(r.Sort))
	}
	if err := p.after(r.Cursor); err != nil {
		return res, err
	}
	w := &walk{ctx: ctx, depth: 1, hidden: r.Hidden, ignore: ignoreName(r.Ignore), visit: p.visit}
	if r.Glob != "" {
		if w.glob, err = parseGlob(decodeName(r.Glob)); err != nil {
			return res, err
		}
		w.hidden = w.hidden || w.glob.dotted()
		if w.depth = w.glob.depth(); w.depth == 0 {
			w.depth = defaultDepth
		}
	}
	if r.Depth > 0 {
		w.depth = r.Depth
	}
	done, err := f.walking(ctx)
	if err != nil {
		return res, err
	}
	defer done()
	err = f.as(sandbox.AgentUID, func() error {
		root, err := f.openRoot(r.Path, path)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		return fileError("list", r.Path, w.run(root))
	})
	if err != nil {
		return res, err
	}
	res.Total, res.Notes = p.total, w.notes()
	res.Entries, res.Cursor = p.entries()
	return res, nil
}

func ignoreName(name string) string {
	switch name {
	case "":
		return ".gitignore"
	case "none":
		return ""
	}
	return name
}

// page keeps the limit smallest items after a key.
type page struct {
	sort  string
	limit int
	total int
	from  *key // nil at the start
	items []item
	full  *key // the largest that is still of the page, once there are enough
}

// key is what entries are ordered by: size and time from the largest on, then
// the path.
type key struct {
	Sort  string `json:"s"`
	Value int64  `json:"v,omitempty"`
	Path  string `json:"p"` // as encodeName writes it: a cursor is JSON
}

type item struct {
	value int64
	path  string
	entry sandbox.Entry
}

// less orders by value, then by path.
func less[P string | []byte](value int64, path P, v int64, p string) bool {
	if value != v {
		return value > v
	}
	return comparePaths(path, p) < 0
}

func (p *page) visit(dir int, name string, kind uint8, path []byte) error {
	p.total++
	var st unix.Stat_t
	var value int64
	known := false
	if p.sort != "name" {
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return nil
		}
		known = true
		value = st.Size
		if p.sort == "time" {
			value = st.Mtim.Nano()
		}
	}
	if p.from != nil && !less(p.from.Value, p.from.Path, value, string(path)) {
		return nil
	}
	if p.full != nil && !less(value, path, p.full.Value, p.full.Path) {
		return nil
	}
	if !known && unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	e := sandbox.Entry{Path: encodeName(string(path)), Type: typeName(st.Mode), Size: st.Size, Mode: modeText(st.Mode),
		Time: time.Unix(st.Mtim.Unix()).UTC().Format(time.RFC3339)}
	if e.Type == "symlink" {
		buf := make([]byte, maxPath)
		if n, err := unix.Readlinkat(dir, name, buf); err == nil {
			e.Target = encodeName(string(buf[:n]))
		}
	}
	p.items = append(p.items, item{value, string(path), e})
	if len(p.items) >= 2*p.limit+64 {
		p.cut()
	}
	return nil
}

// cut keeps one item more than the page, which tells that there is a next one.
func (p *page) cut() {
	slices.SortFunc(p.items, func(a, b item) int {
		if less(a.value, a.path, b.value, b.path) {
			return -1
		}
		return 1
	})
	if len(p.items) > p.limit+1 {
		clear(p.items[p.limit+1:])
		p.items = p.items[:p.limit+1]
		last := p.items[p.limit]
		p.full = &key{Value: last.value, Path: last.path}
	}
}

func (p *page) entries() ([]sandbox.Entry, string) {
	p.cut()
	out := []sandbox.Entry{}
	size := 0
	for i, it := range p.items {
		size += len(it.entry.Path) + len(it.entry.Target) + 48
		if i == p.limit || (size > maxPage && i > 0) {
			last := p.items[i-1]
			return out, encodeCursor(key{p.sort, last.value, encodeName(last.path)})
		}
		out = append(out, it.entry)
	}
	return out, ""
}

func (p *page) after(cursor string) error {
	if cursor == "" {
		return nil
	}
	var k key
	if err := decodeCursor(cursor, &k); err != nil {
		return err
	}
	if k.Sort != p.sort {
		return sandbox.Errorf(sandbox.InvalidArgument, "Repeat the call that gave the cursor, with all of its arguments.", "cursor: it belongs to a listing with another sort")
	}
	k.Path = decodeName(k.Path)
	p.from = &k
	return nil
}

// encodeCursor writes where to go on as an opaque word.
func encodeCursor(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // plain structs of ours; a marshalling error cannot come
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(cursor string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil || len(cursor) > 32<<10 {
		return sandbox.Errorf(sandbox.InvalidArgument, "Give the cursor of the last answer, unchanged.", "cursor: not one of ours")
	}
	return nil
}
