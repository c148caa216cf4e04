package templates

import (
	"embed"
	"fmt"

	"pinfold.dev/pinfold/sandbox"
)

//go:embed image
var imageFiles embed.FS

// ImageRecipe returns the recipe of Pinfold's own image, which a template with
// an empty image uses.
func ImageRecipe() (sandbox.Recipe, error) {
	var text [4]string
	for i, name := range []string{"packages.txt", "excludes.txt", "customize.sh", "Containerfile"} {
		data, err := imageFiles.ReadFile("image/" + name)
		if err != nil {
			return sandbox.Recipe{}, fmt.Errorf("reading embedded recipe: %w", err)
		}
		text[i] = string(data)
	}
	packages, err := sandbox.ParsePackages(text[0])
	if err != nil {
		return sandbox.Recipe{}, err
	}
	excludes, err := sandbox.ParseExcludes(text[1])
	if err != nil {
		return sandbox.Recipe{}, err
	}
	return sandbox.Recipe{Packages: packages, Excludes: excludes, Customize: text[2], Containerfile: text[3]}, nil
}
