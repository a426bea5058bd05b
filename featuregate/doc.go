// Package featuregate says which pods are resized by which path, where and from when: the roll-out of resizing, region by region.
//
// Policy is what an operator writes down, in one YAML file (policy.go, parse.go, check.go). Decider answers from it, as a pure
// function (decide.go). Gate is the resize.Gate that goes by a policy which may change while it is in use (gate.go, source.go), and
// that turns a region off when too much goes wrong there (halt.go); the halted regions are kept in a ConfigMap of their own
// (haltstore.go).
package featuregate
