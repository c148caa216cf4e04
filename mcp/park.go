package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

// parked is the record of a session whose sandbox was stopped with its
// workspace kept. It lies in the state folder until someone resumes it or its
// time is over.
type parked struct {
	Version   int                `json:"version"` // 1
	ID        string             `json:"id"`
	Name      string             `json:"name,omitempty"`
	Template  string             `json:"template"`
	Principal policies.Principal `json:"principal"`
	Spec      sandbox.Spec       `json:"spec"`
	Info      sandbox.Info       `json:"info"`
	Created   time.Time          `json:"created"`
	LastUsed  time.Time          `json:"last_used"`
	Until     time.Time          `json:"until"`
}

var handleForm = regexp.MustCompile(`^ses_[a-z0-9]{20,40}$`)

// maxParkedFile bounds a record that is read.
const maxParkedFile = 256 << 10

func (s *Server) parkedDir() string { return filepath.Join(s.opt.StateDir, "parked") }

// park writes the record, whole or not at all.
func (s *Server) park(ses *session, info sandbox.Info) (*parked, error) {
	ses.mu.Lock()
	used, spec := ses.lastUsed, ses.spec
	ses.mu.Unlock()
	p := &parked{Version: 1, ID: ses.id, Name: ses.name, Template: ses.template.Name, Principal: ses.principal, Spec: spec, Info: info,
		Created: ses.created, LastUsed: used, Until: time.Now().Add(ses.template.Lifetimes().Park)}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("parking a session: %w", err)
	}
	if err := os.MkdirAll(s.parkedDir(), 0o700); err != nil {
		return nil, fmt.Errorf("parking a session: %w", err)
	}
	tmp, err := os.CreateTemp(s.parkedDir(), ".new-*")
	if err != nil {
		return nil, fmt.Errorf("parking a session: %w", err)
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(s.parkedDir(), ses.id+".json"))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return nil, fmt.Errorf("parking a session: %w", err)
	}
	return p, nil
}

func (s *Server) parkedByID(id string) (*parked, error) {
	if !handleForm.MatchString(id) {
		return nil, os.ErrNotExist
	}
	path := filepath.Join(s.parkedDir(), id+".json")
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || st.Size() > maxParkedFile {
		return nil, os.ErrNotExist
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var p parked
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("reading the record of %s: %w", id, err)
	}
	if p.Version != 1 || p.ID != id || p.Principal != s.opt.Principal {
		return nil, os.ErrNotExist
	}
	return &p, nil
}

// parkedAll lists the parked sessions of the principal, oldest first.
func (s *Server) parkedAll() []*parked {
	entries, _ := os.ReadDir(s.parkedDir())
	var all []*parked
	for _, e := range entries {
		if p, err := s.parkedByID(strings.TrimSuffix(e.Name(), ".json")); err == nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *parked) int { return a.Created.Compare(b.Created) })
	return all
}

func (s *Server) parkedByName(name string) *parked {
	var found *parked
	for _, p := range s.parkedAll() {
		if p.Name == name {
			found = p
		}
	}
	return found
}

// resume makes a session of a record. The lock on its journal keeps two servers
// from doing so at once.
func (s *Server) resume(ctx context.Context, p *parked, o *origin) (*session, error) {
	t := s.opt.Templates[p.Template]
	if t == nil {
		return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Ask the user to bring the template back.", "session %s was made from the template %q, which is gone", p.ID, p.Template)
	}
	spec := p.Spec
	spec.Owner, spec.Epoch, spec.Resume = s.opt.Owner, spec.Epoch+1, p.ID
	ses, err := s.mint(ctx, o, t, spec, p.Name, false)
	if err != nil {
		return nil, err
	}
	ses.mu.Lock()
	ses.resumed, ses.touched, ses.info = true, true, p.Info
	ses.mu.Unlock()
	return ses, nil
}

// unpark removes the record of a session whose workspace is gone. It stays
// while the session lives, so that a crash does not cost the workspace.
func (s *Server) unpark(id string) {
	if err := os.Remove(filepath.Join(s.parkedDir(), id+".json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("a parked session's record stays", "session", id, "err", err)
	}
}

// expireParked removes the workspaces whose time is over.
func (s *Server) expireParked(ctx context.Context, now time.Time) {
	for _, p := range s.parkedAll() {
		if now.Before(p.Until) {
			continue
		}
		j, err := audit.Open(s.journalDir(), p.ID)
		if err != nil {
			continue // someone is resuming it
		}
		err = s.opt.Launcher.Discard(ctx, p.ID, p.Info.ID)
		if err == nil {
			err = os.Remove(filepath.Join(s.parkedDir(), p.ID+".json"))
			_ = j.Append(ctx, audit.Event{Kind: audit.SessionEnd, Message: "the kept workspace's time is over"})
		}
		_ = j.Close()
		s.log.Info("parked session expired", "session", p.ID, "err", err)
	}
}
