package cluster

// Other hosts of the cluster may have given this one any number of tables that the first rules do
// not name. They do so by labels that are different for each pod, and by names of any length. The
// first rules come with as many as the engine is sure to take, with the longest name that rules can
// write.
const (
	mostFirst    = 512
	longestTable = 63
)

// FirstTables returns which tables of the cluster come with the first rules, beside so many of the
// labels of own pods. The engine takes the others later, each by itself, or has no place for them.
func FirstTables(named map[string]bool, own int) (pick func(table string) bool) {
	others := map[string]bool{}
	return func(table string) bool {
		if named[table] || others[table] {
			return true
		}
		if len(others) >= mostFirst-own || len(table) > longestTable {
			return false
		}
		others[table] = true
		return true
	}
}
