package resize_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// TestReasonsAreDocumented: docs/reasons.md lists exactly the reasons of reason.go, in their order.
func TestReasonsAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons = append(reasons, reason)
			}
		}
		return true
	})
	text, err := os.ReadFile("../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("## Reasons of a Result")) // the table before it is of states
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \|`).FindAllSubmatch(text, -1) {
		if name := string(row[1]); name != "Reason" {
			documented = append(documented, name)
		}
	}
	if len(reasons) == 0 || !slices.Equal(reasons, documented) {
		t.Errorf("reason.go has\n%q, docs/reasons.md has\n%q", reasons, documented)
	}
}
