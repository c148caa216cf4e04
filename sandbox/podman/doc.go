// Package podman is the engine that makes sandboxes with rootless Podman, and
// the only importer of Podman's bindings.
//
// It talks to the service named by CONTAINER_HOST, else to a service of its
// own: a child on a private socket, with our own configuration over the user's
// storage. Nothing of Podman leaves this package: callers see sandbox.Engine,
// sandbox.Sandbox and sandbox.Error.
package podman
