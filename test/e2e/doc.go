// Package e2e runs podresize on real clusters, one for each name in PODRESIZE_KUBERNETES ("1.26 1.37" unless set; package setting
// knows the names): API server, kubelet, runtime and kernel are real (see test/cluster), agent and rights come from manifests/, and
// what counts is what the cgroup files and the audit log say.
//
// e2e_test.go is the list of questions, harness_test.go what they share, and each other file one question.
package e2e
