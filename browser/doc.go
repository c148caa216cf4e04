// Package browser drives one Chromium over a DevTools stream that it is handed.
//
// Words. A [Browser] is the one browser of a session; it starts on first use
// and starts again after it was lost. A tab (t1, t2, …) is one page with its
// history. A snapshot is a page as text in which each thing that can be acted
// on has a ref (e1, e2, …). A ref belongs to one tab, frame, document and node;
// it is never given to another node, and it is checked before it is used. An
// event is something that happened since the last reply: a navigation, a
// dialog, a finished download.
//
// Rules. Chromium and everything it says are hostile: sizes are bounded, page
// text is cleaned and fenced, pictures are passed on and never decoded here.
// There is no DevTools port, only the pipe. No script is injected to look at a
// page. Every call ends within its deadline, also when a page loops, shows a
// dialog or crashes. A tab takes one call at a time; tabs run in parallel. The
// package knows nothing of sandboxes: a [Host] starts the process and moves
// files.
package browser
