// Package mcp is the protocol edge: transports, the registry of sessions and
// the one path that every call takes.
//
// Words. A peer is one client on one transport: the stdio process, one MCP
// session of the older revisions over HTTP or SSE, or one request of the
// stateless revision. A [Session] is our unit of work, with an id of ours: one
// sandbox, at most one browser, one journal. A call is one tools/call.
//
// Rules. Nothing runs before its intent is journaled. A call never returns a Go
// error to the library: a failure is a result that a model can act on. A
// session belongs to a principal; its handle is a name, not a permission.
// Sandboxes start behind the first call that needs one, and listing tools
// touches no engine.
//
// [Server] is the product; [Edge] carries any mcp-go server over the same
// transports.
package mcp
