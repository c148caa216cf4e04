package browser

import (
	"fmt"
	"strconv"
	"strings"
)

// refKey is what a ref stands for: one node of one document of one frame.
type refKey struct {
	frame, loader string
	backend       int64
}

// refInfo is one ref with its fingerprint.
type refInfo struct {
	ref  string
	key  refKey
	role string
	name string
	// textual says that the name is the node's text, not a name that
	// accessibility gives it.
	textual bool
	seen    int // the last look that had it
}

const (
	maxRefs     = 100_000
	retireAfter = 3 // looks without the node
)

// refs are the refs of one tab. The counter never goes back, so a ref is never
// given to another node. Only the holder of the tab's lock uses it.
type refs struct {
	next  int
	look  int
	byKey map[refKey]*refInfo
	byRef map[string]*refInfo
}

func (r *refs) init() {
	r.byKey, r.byRef = map[refKey]*refInfo{}, map[string]*refInfo{}
}

// assign returns the ref of a node. A known ref keeps the fingerprint that the
// caller last saw: only [refs.saw] changes it.
func (r *refs) assign(k refKey, role, name string, textual bool) string {
	if i := r.byKey[k]; i != nil {
		i.seen = r.look
		return i.ref
	}
	if len(r.byRef) >= maxRefs {
		return ""
	}
	r.next++
	i := &refInfo{ref: "e" + strconv.Itoa(r.next), key: k, role: role, name: cut(name, 200), textual: textual, seen: r.look}
	r.byKey[k], r.byRef[i.ref] = i, i
	return i.ref
}

// saw takes what a node is now as what the caller knows of it.
func (r *refs) saw(n *node) {
	if i := r.byRef[n.ref]; i != nil && n.ref != "" && i.role != "unlisted" {
		i.role, i.name, i.textual = n.role, cut(n.name, 200), n.textual
	}
}

// begin starts a new look and forgets what is long gone. docs are the
// documents that exist now, by frame.
func (r *refs) begin(docs map[string]string) {
	r.look++
	for ref, i := range r.byRef {
		if r.look-i.seen > retireAfter || docs[i.key.frame] != i.key.loader && r.look-i.seen > 1 {
			delete(r.byRef, ref)
			delete(r.byKey, i.key)
		}
	}
}

// find returns the ref's node. A ref that was given once but is forgotten is
// stale; one that never was is not found.
func (r *refs) find(ref string) (*refInfo, error) {
	if i := r.byRef[ref]; i != nil {
		return i, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(ref, "e"))
	if err == nil && n > 0 && n <= r.next {
		return nil, stale(ref, "it belonged to a page or a part of it that is gone")
	}
	return nil, fail("not_found", "Take a browser_snapshot; its refs look like e12.", "there is no ref %s in this tab", quote(cut(cleanText(ref), 20)))
}

func stale(ref, why string) *Error {
	return fail("stale_ref", "Take a new browser_snapshot and use its refs.", "%s is stale: %s", ref, why).with("ref", ref)
}

func (i *refInfo) String() string { return fmt.Sprintf("%s %s", i.role, quote(i.name)) }
