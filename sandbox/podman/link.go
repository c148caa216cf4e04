package podman

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// link is the listening side of one sandbox's socket. It takes one connection,
// from the guest, and is gone.
type link struct {
	service *service
	dir     string // on the host; mounted at sandbox.LinkDir

	mu sync.Mutex
	l  *net.UnixListener
}

// newLink makes a folder with a listening socket and gives both to root of the
// sandbox, so that uid 1000 inside can neither connect nor replace the socket:
// under keep-id a folder of the host user would be its own.
func (s *service) newLink(ctx context.Context, dir string) (*link, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("making link folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); errors.Is(err, os.ErrExist) {
		return nil, sandboxExists(filepath.Base(dir), err)
	} else if err != nil {
		return nil, fmt.Errorf("making link folder: %w", err)
	}
	l := &link{service: s, dir: dir}
	path := filepath.Join(dir, filepath.Base(sandbox.LinkSocket))
	ul, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		ul.SetUnlinkOnClose(false) // the folder goes as a whole, and is not ours any more
		l.l = ul
		err = os.Chmod(path, 0o700)
	}
	if err == nil {
		// Both mappings put root of the sandbox at 1 of Podman's namespace.
		err = s.inside(ctx, "chown", "-R", "1:1", "--", dir)
	}
	if err != nil {
		l.close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("making link socket: %w", err)
	}
	return l, nil
}

// accept waits for the guest. Whoever else connects ends the link: nothing but
// root of the sandbox can reach the socket.
func (l *link) accept(ctx context.Context, pid, uid int) (net.Conn, error) {
	l.mu.Lock()
	ul := l.l
	l.mu.Unlock()
	if ul == nil {
		return nil, net.ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = ul.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := ul.AcceptUnix()
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("waiting for the guest: %w", err)
	}
	cred, err := peer(c)
	if err == nil && (int(cred.Pid) != pid || int(cred.Uid) != uid) {
		err = fmt.Errorf("process %d of uid %d connected, not the guest (process %d of uid %d)", cred.Pid, cred.Uid, pid, uid)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("checking who connected to the link: %w", err)
	}
	return c, nil
}

// close ends listening and removes the folder. It may be called again.
func (l *link) close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.l != nil {
		err = l.l.Close()
		l.l = nil
	}
	return errors.Join(err, l.service.removeTree(ctx, l.dir))
}

// peer returns who is at the other end of a socket.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return nil, cerr
	}
	return cred, err
}
