package sandbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecipeHashCoversTheWholeRecipe(t *testing.T) {
	base := Recipe{
		Packages:  []Package{{Name: "git"}, {Name: "chromium", Only: "debian"}},
		Excludes:  []string{"/usr/share/man/*"},
		Customize: "true", Containerfile: "FROM x",
	}
	same := base
	same.Base = "elsewhere" // a base changes where it is made, not what
	assert.Equal(t, base.Reference(), same.Reference())
	assert.Regexp(t, `^localhost/pinfold:[0-9a-f]{16}$`, base.Reference())

	for name, change := range map[string]func(*Recipe){
		"a package":        func(r *Recipe) { r.Packages = []Package{{Name: "git"}} },
		"its distribution": func(r *Recipe) { r.Packages = []Package{{Name: "git"}, {Name: "chromium"}} },
		"an exclude":       func(r *Recipe) { r.Excludes = nil },
		"the script":       func(r *Recipe) { r.Customize = "false" },
		"the file":         func(r *Recipe) { r.Containerfile = "FROM y" },
	} {
		r := base
		change(&r)
		assert.NotEqual(t, base.Hash(), r.Hash(), "%s is part of the hash", name)
	}
	assert.Equal(t, []string{"chromium", "git"}, base.PackagesFor("debian"))
	assert.Equal(t, []string{"git"}, base.PackagesFor("ubuntu"))
}

func TestParsePackages(t *testing.T) {
	list, err := ParsePackages("# fonts\nfonts-x\n\nchromium @debian # snap elsewhere\n")
	require.NoError(t, err)
	assert.Equal(t, []Package{{Name: "fonts-x"}, {Name: "chromium", Only: "debian"}}, list)
	for _, bad := range []string{"a b", "a @debian @ubuntu", "--option", "a;b", "a,b", "../a", "$(x)"} {
		_, err := ParsePackages("git\n" + bad)
		assert.ErrorContains(t, err, "line 2", bad)
	}
}

func TestParseExcludes(t *testing.T) {
	list, err := ParseExcludes("# docs\n/usr/share/doc/*\n!/usr/share/doc/*/copyright\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"/usr/share/doc/*", "!/usr/share/doc/*/copyright"}, list)
	for _, bad := range []string{"usr/share", "/a b", "!x", `/a"b`} {
		_, err := ParseExcludes(bad)
		assert.ErrorContains(t, err, "line 1", bad)
	}
}

func TestMissingImageSaysWhatToDo(t *testing.T) {
	e := ImageState{Reference: "localhost/pinfold:x"}.Missing()
	assert.Equal(t, FailedPrecondition, e.Code)
	assert.Contains(t, e.Hint, "pinfold image build")
	assert.Contains(t, e.Hint, "image: host")

	e = ImageState{Reference: "localhost/pinfold:x", LastError: "the disk is full"}.Missing()
	assert.Contains(t, e.Message, "the disk is full")

	e = ImageState{Reference: "localhost/pinfold:x", Preparing: true, Stage: "installing packages", Percent: 41}.Missing()
	assert.Equal(t, Unavailable, e.Code)
	assert.True(t, e.Retry)
	assert.Contains(t, e.Message, "41%")
}
