package guest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"pinfold.dev/pinfold/sandbox"
)

// The greeting comes before the link is multiplexed: the guest greets, the host
// answers with proof that it knows the token, the guest answers with its own
// proof and its report. The token itself never travels here, so that neither a
// false host nor a false guest learns it.

const (
	magic      = "pinfold-guest"
	frameHello = FrameType('H')
	maxHello   = 64 << 10
	nonceSize  = 16
)

type guestHello struct {
	Magic   string `json:"magic"`
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"`
}

type hostHello struct {
	Magic   string `json:"magic"`
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"`
	Proof   []byte `json:"proof"`
}

type guestProof struct {
	Proof  []byte `json:"proof"`
	Report Report `json:"report"`
}

// Report is what the guest found at its start, before it changed anything. It
// is the guest's word: the engine checks from outside what it can.
type Report struct {
	Build        string            `json:"build"` // version of the binary
	PID          int               `json:"pid"`
	Seccomp      int               `json:"seccomp"` // mode before the guest's own filter: 0 none, 2 filter
	Filter       string            `json:"filter"`  // the guest's own: "on", or why not
	NoNewPrivs   bool              `json:"no_new_privs"`
	CapEffective string            `json:"cap_effective"` // hexadecimal, as in /proc
	CapBounding  string            `json:"cap_bounding"`
	UIDMap       string            `json:"uid_map"`
	GIDMap       string            `json:"gid_map"`
	Kernel       string            `json:"kernel"`
	GVisor       bool              `json:"gvisor"`           // the kernel says it is gVisor's
	Interfaces   []string          `json:"interfaces"`       // of the network
	ReadOnlyRoot bool              `json:"read_only_root"`   // the root file system refuses writes
	Probes       map[string]string `json:"probes,omitempty"` // what the container's own profile answers: call → "refused", "allowed"
	Notes        []string          `json:"notes,omitempty"`  // what the guest could not do, in plain words
}

// ErrToken is the cause when a side does not know the token.
var ErrToken = errors.New("the other side does not know the token")

// proof binds the token to both nonces and to the side that proves.
func proof(token, side string, g, h []byte) []byte {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte(magic + "\x00" + side + "\x00"))
	m.Write(g)
	m.Write(h)
	return m.Sum(nil)
}

// Greet is the guest's side of the greeting. It waits for the host for as long
// as the link stands: a sandbox may be started long before it is used.
func Greet(conn net.Conn, token string, report Report) error {
	own := guestHello{Magic: magic, Version: Version, Nonce: nonce()}
	if err := WriteMessage(conn, frameHello, own); err != nil {
		return err
	}
	var h hostHello
	if err := readHello(conn, &h); err != nil {
		return err
	}
	if h.Magic != magic || h.Version != Version || len(h.Nonce) != nonceSize {
		return fmt.Errorf("the host speaks version %d of %q, this guest %d", h.Version, h.Magic, Version)
	}
	if !hmac.Equal(h.Proof, proof(token, "host", own.Nonce, h.Nonce)) {
		return ErrToken
	}
	return WriteMessage(conn, frameHello, guestProof{Proof: proof(token, "guest", own.Nonce, h.Nonce), Report: report})
}

// greet is the host's side. The caller sets the deadline.
func greet(conn net.Conn, token string) (Report, error) {
	var g guestHello
	if err := readHello(conn, &g); err != nil {
		return Report{}, err
	}
	if g.Magic != magic || len(g.Nonce) != nonceSize {
		return Report{}, fmt.Errorf("%w: no greeting of a guest", ErrFrame)
	}
	if g.Version != Version {
		return Report{}, &sandbox.Error{
			Code: sandbox.FailedPrecondition, Reason: "guest_version",
			Message: fmt.Sprintf("the sandbox's guest speaks version %d, this server %d", g.Version, Version),
			Hint:    "Open a new session; run make build if the binaries are of different days.",
		}
	}
	own := nonce()
	h := hostHello{Magic: magic, Version: Version, Nonce: own, Proof: proof(token, "host", g.Nonce, own)}
	if err := WriteMessage(conn, frameHello, h); err != nil {
		return Report{}, err
	}
	var p guestProof
	if err := readHello(conn, &p); err != nil {
		return Report{}, err
	}
	if !hmac.Equal(p.Proof, proof(token, "guest", g.Nonce, own)) {
		return Report{}, ErrToken
	}
	return p.Report, nil
}

// readHello reads one frame and not a byte more: the multiplexer reads on.
func readHello(conn io.Reader, v any) error {
	t, b, err := ReadFrame(conn, maxHello)
	if err != nil {
		return fmt.Errorf("reading the greeting: %w", err)
	}
	if t != frameHello {
		return fmt.Errorf("%w: %q in the greeting", ErrFrame, t)
	}
	if err := Decode(b, v); err != nil {
		return fmt.Errorf("reading the greeting: %w", err)
	}
	return nil
}

func nonce() []byte {
	b := make([]byte, nonceSize)
	_, _ = rand.Read(b) // never fails
	return b
}

// ReadConfig reads the Config line from r, byte by byte: with LinkStdio the
// stream follows it.
func ReadConfig(r io.Reader) (Config, error) {
	var line []byte
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(r, one); err != nil {
			return Config{}, fmt.Errorf("reading the configuration: %w", err)
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) > maxHello {
			return Config{}, errors.New("reading the configuration: the line is longer than 64 KiB")
		}
	}
	var c Config
	if err := Decode(line, &c); err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if c.Version != Version || len(c.Token) < 16 {
		return Config{}, fmt.Errorf("the configuration is of version %d, this guest of %d, or its token is too short", c.Version, Version)
	}
	return c, nil
}

// WriteConfig writes the Config line.
func WriteConfig(w io.Writer, c Config) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
