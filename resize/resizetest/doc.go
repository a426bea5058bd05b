// Package resizetest helps to test resizers, and what uses them.
//
// Run is the conformance suite: the rules of resize.Resizer that no compiler checks, each a subtest. What a Resizer says is
// compared with what the kernel holds, never with another status. The suite knows no path: InPlace, the CRI path and Fake pass
// the same one. What it cannot bring about by itself, such as a full node, is tested next to each Resizer.
//
// Fake is a Resizer in memory for tests of controllers. It passes the suite.
package resizetest
