package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/podman"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// openEngine returns the engine of an instance. It touches no Podman yet: that
// happens at the first call, so that a server answers its client at once.
func openEngine(i *instance, log *slog.Logger) (*podman.Engine, error) {
	return podman.New(podman.Options{Owner: i.id, RuntimeDir: filepath.Dir(i.dir), CacheDir: cacheDir(), StateDir: stateDir(), Log: log})
}

// launcher starts sandboxes and connects to their guests.
type launcher struct {
	engine *podman.Engine
	log    *slog.Logger
}

func (l launcher) Launch(ctx context.Context, spec sandbox.Spec) (*mcp.Box, error) {
	sb, err := l.engine.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	client, err := connect(ctx, sb)
	if err != nil {
		// What was asked for is not there: nothing of it may stay, although ctx may be over.
		if err := sb.Remove(context.WithoutCancel(ctx)); err != nil {
			l.log.Warn("removing a sandbox whose guest did not answer", "sandbox", sb.Info().ID, "err", err)
		}
		return nil, err
	}
	return &mcp.Box{Sandbox: sb, Guest: client}, nil
}

// Discard goes by session: the container of a parked one is gone, its volumes stay.
func (l launcher) Discard(ctx context.Context, session, _ string) error {
	return l.engine.Remove(ctx, session)
}

func connect(ctx context.Context, sb sandbox.Sandbox) (*guest.Client, error) {
	conn, err := sb.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return guest.Connect(ctx, conn, guest.Expect{Token: sb.Token(), Isolation: sb.Info().Isolation})
}

// loadTemplates reads all templates of this user and the operator's.
func loadTemplates() (*templates.Set, error) {
	set, err := templates.Load(templates.Folders{
		User:  filepath.Join(configDir(), "templates"),
		Floor: filepath.Join(operatorDir, "templates"),
	})
	if err != nil {
		return nil, &failure{what: err.Error(), next: "Correct the template; nothing was started.", code: exitFailure}
	}
	return set, nil
}

// loadPolicy finds a policy by name: the operator's, the user's, the built-in one.
func loadPolicy(name string) (*policies.Policy, error) {
	if name != filepath.Base(name) || name == "." {
		return nil, fail("Give the name of a file in "+filepath.Join(configDir(), "policies")+", without .yaml.", "policy: %q is not a name", name)
	}
	for _, dir := range []string{operatorDir, configDir()} {
		path := filepath.Join(dir, "policies", name+".yaml")
		data, err := policies.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if dir == operatorDir {
			if err := policies.RootOwned(path); err != nil {
				return nil, operatorFault(err)
			}
		}
		p, err := policies.Load(data)
		if err != nil {
			return nil, &failure{what: fmt.Sprintf("%s: %v", path, err), next: "Correct the policy; nothing was started.", code: exitFailure}
		}
		return p, nil
	}
	if name == "default" {
		return policies.Default(), nil
	}
	return nil, fail("Write it to "+filepath.Join(configDir(), "policies", name+".yaml")+", or leave --policy out.", "policy: there is none named %q", name)
}

// principal is who acts on this server: the local user.
func principal() policies.Principal {
	return policies.Principal{Kind: "local", Name: fmt.Sprintf("uid:%d", os.Getuid())}
}

// imageOf names the image of a template; Pinfold's own is that of its recipe.
func imageOf(t *templates.Template) string {
	if t.Image != "" {
		return t.Image
	}
	r, err := templates.ImageRecipe()
	if err != nil {
		return ""
	}
	return r.Reference()
}

// newServer joins the parts of a server. It starts nothing.
func newServer(s settings, i *instance, e *podman.Engine, set *templates.Set, policy *policies.Policy, log *slog.Logger) (*mcp.Server, error) {
	return mcp.New(mcp.Options{
		Version:      version,
		Owner:        i.id,
		Principal:    principal(),
		Tools:        tools.Of(s.Tools),
		Policy:       policy,
		PolicyName:   policy.Name,
		PolicyDigest: "sha256:" + policy.Digest(),
		PolicyText:   policy.Text(),
		Templates:    set.All(),
		Template:     s.Template,
		Image:        imageOf,
		Workspace:    s.Workspace,
		Roots:        s.Roots,
		Launcher:     launcher{engine: e, log: log},
		OpenBrowser:  openBrowser(log),
		StateDir:     stateDir(),
		Log:          log,
	})
}
