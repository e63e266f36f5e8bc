package shared

import (
	"fmt"
	"maps"
	"path"
	"slices"
)

// Contents are resources by kind and name.
type Contents map[string]map[string]Resource

// Compare are the resources that two proxies have otherwise.
func Compare(direct, relayed Contents) []string {
	var found []string
	all := maps.Clone(direct)
	maps.Copy(all, relayed)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		names := map[string]Resource{}
		maps.Copy(names, direct[kind])
		maps.Copy(names, relayed[kind])
		for _, name := range slices.Sorted(maps.Keys(names)) {
			one, inDirect := direct[kind][name]
			other, inRelayed := relayed[kind][name]
			switch {
			case !inRelayed:
				found = append(found, fmt.Sprintf("%s %s is missing", path.Base(kind), name))
			case !inDirect:
				found = append(found, fmt.Sprintf("%s %s is too much", path.Base(kind), name))
			case !one.Equals(other):
				found = append(found, fmt.Sprintf("%s %s differs", path.Base(kind), name))
			}
		}
	}
	return found
}
