//go:build linux

package server

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

//go:embed kernel_init.py
var kernelInit string

// makeFolder makes the folder of the kernel's sockets, with the connection file
// in it, at the first place that takes one.
func (kn *kernel) makeFolder() (file string, err error) {
	for _, temp := range kn.k.temps {
		kn.folder = temp + "/.pinfold-kernel-" + rand.Text()[:8]
		file = kn.folder + "/connection.json"
		if err = kn.k.files.as(sandbox.AgentUID, func() error { return writeConnection(kn, file) }); err == nil {
			return file, nil
		}
	}
	return "", err
}

// writeConnection must run inside as.
func writeConnection(kn *kernel, file string) error {
	if err := unix.Mkdir(kn.folder, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": kn.folder + "/k", "key": string(kn.sign.key), "signature_scheme": "hmac-sha256",
		"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, "kernel_name": "python3",
	})
	if err != nil {
		return err
	}
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, b)
	return err
}

// kernelMissing tells an image without a kernel from one whose kernel is broken.
func kernelMissing(err error, stderr string) error {
	lacks := ""
	var own *sandbox.Error
	switch {
	case strings.Contains(stderr, "No module named ipykernel"):
		lacks = "ipykernel"
	case err != nil && (errors.Is(err, unix.ENOENT) || errors.Is(err, os.ErrNotExist)), errors.As(err, &own) && own.Code == sandbox.NotFound:
		lacks = "python3"
	}
	if lacks != "" {
		return &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: "image_lacks", Details: map[string]any{"image_lacks": lacks},
			Message: "this session's image has no " + lacks + ", which code_run needs",
			Hint:    "Use shell_run with python3 or another program; or make the full image with pinfold image build and open a new session."}
	}
	if own != nil {
		return err
	}
	return &sandbox.Error{Code: sandbox.Unavailable, Reason: "kernel_start", Retry: true, Cause: err,
		Message: strings.TrimSpace("the Python kernel did not start. " + stderr), Hint: "Try again; shell_run with python3 -m ipykernel_launcher shows more."}
}

// connect waits for the kernel's sockets and connects to them, as the agent:
// their folder is closed to everyone else.
func (kn *kernel) connect(ctx context.Context) error {
	for _, s := range []struct {
		port int
		kind string
		to   **peer
	}{{1, "DEALER", &kn.shell}, {2, "SUB", &kn.iopub}, {4, "DEALER", &kn.control}} {
		path := kn.folder + "/k-" + strconv.Itoa(s.port)
		for *s.to == nil {
			conn, err := kn.k.dial(path)
			if err == nil {
				p, err := greetPeer(conn, s.kind)
				if err != nil {
					return kernelMissing(err, kn.stderr.text())
				}
				*s.to = p
				break
			}
			select {
			case <-time.After(10 * time.Millisecond): // the socket appears when the kernel has come so far
			case <-kn.proc.done:
				kn.stderr.wait()
				return kernelMissing(nil, kn.proc.how()+"\n"+kn.stderr.text())
			case <-ctx.Done():
				return kernelMissing(ctx.Err(), kn.stderr.text())
			}
		}
	}
	return kn.iopub.send([][]byte{{1}}) // subscribe to everything
}

// dial connects to a Unix socket as the agent.
func (k *kernels) dial(path string) (net.Conn, error) {
	var fd int
	err := k.files.as(sandbox.AgentUID, func() (err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return net.FileConn(f)
}

// prepare waits until the kernel answers on both channels and sets it up. A
// subscription takes effect at some time after it was sent, so that the first
// broadcasts may be missed: it asks until one comes.
func (kn *kernel) prepare(ctx context.Context) error {
	folder, err := json.Marshal(kn.k.out)
	if err != nil {
		return err
	}
	code := kernelInit + "\n_pinfold_setup(" + string(folder) + ")\ndel _pinfold_setup\n"
	for range 20 {
		r := newRun(kn, "")
		if err := kn.submit(r, code, true); err != nil {
			return kernelMissing(err, kn.stderr.text())
		}
		select {
		case <-r.replied:
		case <-kn.dead:
			kn.stderr.wait()
			return kernelMissing(nil, kn.reason+"\n"+kn.stderr.text())
		case <-ctx.Done():
			return kernelMissing(ctx.Err(), kn.stderr.text())
		}
		select {
		case <-r.done:
			return nil
		case <-kn.dead:
			return kernelMissing(nil, kn.reason)
		case <-time.After(200 * time.Millisecond):
			kn.forget(r)
			code = "pass" // the first took effect, only its end was not heard
		}
	}
	return kernelMissing(nil, "its broadcasts do not arrive")
}
