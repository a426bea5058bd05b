package resize

import (
	"cmp"
	"maps"
	"slices"
)

// sortedKeys makes what is said about a map come in the same order each time.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
