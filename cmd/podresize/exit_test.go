package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podresize/podresize/resize"
)

func TestExitCodes(t *testing.T) {
	result := func(state resize.State, reason resize.Reason) error {
		return fromResult(resize.Result{State: state, Reason: reason, Message: "words"})
	}
	failure := func(reason resize.Reason) error {
		return fromFailure(&resize.Error{Reason: reason, Message: "words"})
	}
	for _, tc := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{name: "done", err: result(resize.StateDone, resize.ReasonConfirmed)},
		{name: "in progress", err: result(resize.StateInProgress, resize.ReasonSent)},
		{name: "infeasible", err: result(resize.StateInfeasible, resize.ReasonQOSChange), code: 9, text: "QOSChange: words"},
		{name: "unknown container", err: result(resize.StateInfeasible, resize.ReasonUnknownContainer), code: 4, text: "UnknownContainer: words"},
		{name: "invalid quantity", err: result(resize.StateInfeasible, resize.ReasonInvalidQuantity), code: 5, text: "InvalidQuantity: words"},
		{name: "refused", err: result(resize.StateRefused, resize.ReasonNoPath), code: 10, text: "NoPath: words"},
		{name: "refused by RBAC, in a plan", err: result(resize.StateRefused, resize.ReasonForbidden), code: 7, text: "Forbidden: words"},
		{name: "deferred", err: result(resize.StateDeferred, resize.ReasonNodeFull), code: 11, text: "NodeFull: words"},
		{name: "agent not ready", err: result(resize.StateDeferred, resize.ReasonAgentNotReady), code: 8, text: "AgentNotReady: words"},
		{name: "unconfirmed", err: result(resize.StateUnconfirmed, resize.ReasonWaitingForKubelet), code: 12, text: "WaitingForKubelet: words"},

		{name: "no error", err: nil},
		{name: "forbidden", err: failure(resize.ReasonForbidden), code: 7, text: "Forbidden: words"},
		{name: "pod not found", err: failure(resize.ReasonPodNotFound), code: 3, text: "PodNotFound: words"},
		{name: "conflict", err: failure(resize.ReasonConflict), code: 1, text: "Conflict: words"},
		{name: "unavailable", err: failure(resize.ReasonUnavailable), code: 1, text: "Unavailable: words"},
		{name: "unknown", err: failure(resize.ReasonUnknown), code: 1, text: "Unknown: words"},
		{name: "interrupted", err: fmt.Errorf("reading: %w", context.Canceled), code: 130, text: "reading: context canceled"},
		{name: "anything else", err: fromFailure(errors.New("words")), code: 1, text: "words"},

		{name: "waited for a full node", err: notWithin(0, resize.Result{State: resize.StateDeferred, Reason: resize.ReasonNodeFull, Message: "words"}), code: 11, text: "NodeFull: not done after 0s: words"},
		{name: "waited for a kubelet", err: notWithin(0, resize.Result{State: resize.StateInProgress, Reason: resize.ReasonWaitingForKubelet, Message: "words"}), code: 12, text: "WaitingForKubelet: not done after 0s: words"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := exitCode(tc.err); got != tc.code {
				t.Errorf("got %d, want %d", got, tc.code)
			}
			if tc.err != nil && tc.err.Error() != tc.text {
				t.Errorf("got %q, want %q", tc.err, tc.text)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine(errors.New("a\n  b\tc")); got != "a b c" {
		t.Errorf("got %q", got)
	}
}

// TestExitCodesAreDocumented: docs/cli.md lists exactly the exit codes of exit.go.
func TestExitCodesAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "exit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := []string{"0"}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "exit") {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				codes = append(codes, value.Value)
			}
		}
		return true
	})
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[1])
	}
	if !slices.Equal(codes, documented) {
		t.Errorf("exit.go has %q, docs/cli.md %q", codes, documented)
	}
}
