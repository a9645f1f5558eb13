"""Go's template language, as its package text/template has it: https://pkg.go.dev/text/template."""
