package main

import (
	"context"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"time"

	"pinfold.dev/pinfold/mcp"
)

// listed is a living server with its sessions, or with why it does not answer.
type listed struct {
	Server   serverInfo        `json:"server"`
	Sessions []mcp.SessionInfo `json:"sessions"`
	Error    string            `json:"error,omitempty"`
	dir      string
}

// dialControl connects to the server whose folder dir is; both ends check who
// the other is.
func dialControl(ctx context.Context, dir string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, "control.sock"))
	if err != nil {
		return nil, err
	}
	u := conn.(*net.UnixConn)
	if err := samePeer(u); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// ask makes one short request.
func ask(ctx context.Context, dir string, q controlRequest, patience time.Duration) (controlReply, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dialControl(ctx, dir)
	if err != nil {
		return controlReply{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := writeMessage(conn, frameRequest, q); err != nil {
		return controlReply{}, err
	}
	var r controlReply
	if err := readMessage(conn, frameReply, &r); err != nil {
		return r, err
	}
	return r, r.Error.failure()
}

// servers asks all living servers of this user for their sessions. One that
// has no control socket (a pinfold run) is left out; one that does not answer
// is listed with why.
func servers(ctx context.Context) []listed {
	var all []listed
	found := instances()
	for _, id := range slices.Sorted(maps.Keys(found)) {
		dir := found[id]
		if !isSocket(filepath.Join(dir, "control.sock")) {
			continue
		}
		l := listed{Server: serverInfo{ID: id}, dir: dir}
		r, err := ask(ctx, dir, controlRequest{Op: "sessions"}, 5*time.Second)
		if err == nil {
			l.Server, l.Sessions = r.Server, r.Sessions
		} else if errors.Is(err, context.DeadlineExceeded) {
			l.Error = "does not answer"
		} else {
			l.Error, _ = explain(err)
		}
		all = append(all, l)
	}
	return all
}
