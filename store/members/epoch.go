package members

import "github.com/weirnet/weir/store/cluster"

// Epoch returns the epoch that hosts are in, as a store host knows it that knew another one before,
// 0 for none. It is that of the identity or, if hosts demand signatures, of the signed version. An
// attacker in the store may have written the last one that there is.
func Epoch(known uint64, doc *cluster.Identity, head *cluster.Head, admins []cluster.Key) (
	uint64, error) {
	epoch := doc.Epoch
	if len(admins) > 0 {
		if head == nil || head.Verify(admins) != nil {
			return known, nil
		}
		epoch = min(epoch, head.Number.Epoch)
	}
	if err := cluster.CheckEpoch(max(known, 1), epoch); err != nil {
		return known, err
	}
	return max(known, epoch), nil
}
