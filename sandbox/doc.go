// Package sandbox says what a sandbox is, without an engine.
//
// Words. A sandbox is one running rootless container made from a [Spec] by an
// [Engine]. Its pid 1 is the guest, reached by [Sandbox.Dial], which runs
// commands, works on files and keeps kernels as [AgentUID]. The workspace is
// the tree at [WorkspaceDir]. A process is a command with an id and an output
// that is read by byte offset.
//
// Rules. The package imports nothing of ours and no engine. Everything that
// comes out of a sandbox is hostile: whoever decodes it bounds it. A failure
// is an [*Error]; a command that exits 3 is not a failure.
package sandbox
