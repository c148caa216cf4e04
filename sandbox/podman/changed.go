package podman

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Changed reports whether the layer over an overlay workspace's folder holds
// anything. Of other workspaces it knows nothing: errors.ErrUnsupported.
func (b *box) Changed(context.Context) (bool, error) {
	if b.plan.merged == "" {
		return false, errors.ErrUnsupported
	}
	d, err := os.Open(filepath.Join(filepath.Dir(b.plan.merged), "upper"))
	if err != nil {
		return false, err
	}
	defer d.Close() //nolint:errcheck // read only
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}
