// Package e2e tries the product from outside: the real binary, foreign
// clients, real Podman, attacks with their controls. CASES.md maps each case
// id to its test.
package e2e
