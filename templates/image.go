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
	list, err := imageFiles.Open("image/packages.txt")
	if err != nil {
		return sandbox.Recipe{}, fmt.Errorf("opening embedded recipe: %w", err)
	}
	defer list.Close()
	packages, err := sandbox.ParsePackages(list)
	if err != nil {
		return sandbox.Recipe{}, err
	}
	customize, err := imageFiles.ReadFile("image/customize.sh")
	if err != nil {
		return sandbox.Recipe{}, fmt.Errorf("reading embedded recipe: %w", err)
	}
	containerfile, err := imageFiles.ReadFile("image/Containerfile")
	if err != nil {
		return sandbox.Recipe{}, fmt.Errorf("reading embedded recipe: %w", err)
	}
	return sandbox.Recipe{Packages: packages, Customize: string(customize), Containerfile: string(containerfile)}, nil
}
