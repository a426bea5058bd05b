package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// result is what came of the suites on one cluster.
type result struct {
	tests  int      // that have no others below them
	failed []string // of these, those that failed, were skipped or did not end
	exit   int
	took   time.Duration

	commit, date string
}

// passed needs tests that ran: none is no success.
func (r result) passed() bool { return r.exit == 0 && len(r.failed) == 0 && r.tests > 0 }

func (r result) verdict() string {
	const most = 3
	switch {
	case r.passed():
		return "passed"
	case len(r.failed) == 0:
		return "**failed**"
	case len(r.failed) > most:
		return fmt.Sprintf("**failed**: %s and %d more", strings.Join(r.failed[:most], ", "), len(r.failed)-most)
	default:
		return "**failed**: " + strings.Join(r.failed, ", ")
	}
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// read follows the tests to their end, and writes what they say to log.
func read(events io.Reader, log io.Writer) (result, error) {
	ends := map[string]string{} // by test
	decoder := json.NewDecoder(events)
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return summary(ends), nil
		}
		if err != nil {
			return result{}, fmt.Errorf("reading what the tests say: %w", err)
		}
		switch e.Action {
		case "output":
			if _, err := io.WriteString(log, e.Output); err != nil {
				return result{}, fmt.Errorf("writing the log: %w", err)
			}
		case "run", "pass", "fail", "skip":
			if e.Test != "" {
				ends[e.Test] = e.Action
			}
		}
	}
}

// summary counts the tests at the ends of the branches, on clusters alone: top-level tests that had nothing to do there have none.
func summary(ends map[string]string) result {
	var r result
	for test, end := range ends {
		if end != "pass" && !below(ends, test, end) {
			r.failed = append(r.failed, test[strings.LastIndex(test, "/")+1:])
		}
		if strings.Contains(test, "/") && !below(ends, test, "") {
			r.tests++
		}
	}
	slices.Sort(r.failed)
	return r
}

// below says that there is a test below this one, with that end if it is not empty.
func below(ends map[string]string, test, end string) bool {
	for other, its := range ends {
		if strings.HasPrefix(other, test+"/") && (end == "" || its == end) {
			return true
		}
	}
	return false
}
