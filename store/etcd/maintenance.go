package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Maintenance keeps space free in the database of an embedded member. At its own quota (etcdQuota)
// etcd raises an alarm and refuses every put from then on, also when there is space again.
// Maintenance drops the history before that, gives free pages back, and ends the alarm.
type Maintenance struct {
	client *clientv3.Client
	member *Member

	// What was the newest revision at a time: the history before it is dropped next.
	revision int64
	at       time.Time
}

// When a member frees space. From shortFrom percent of the quota on it drops history, and is
// defragmented if that gives a 16th of the quota back. From noneFrom on, and with an alarm, a 64th
// is enough. An alarm ends when a 32nd of etcd's quota is free. Hosts and administrators do not
// fill that again (server.Config.PercentFull), so it is there for removals.
const (
	spaceEvery = 5 * time.Second
	shortFrom  = 50
	noneFrom   = 90
	// shortHistory is how much history a large database keeps: a watch that is further behind
	// reads everything again. From noneFrom on it is spaceEvery.
	shortHistory = time.Minute
	spaceTimeout = 5 * time.Minute // of a compaction, or of writing what is in use again
)

// Maintenance returns what keeps space free in the member's database, with a connection to that
// member.
func (m *Member) Maintenance(d *Driver) *Maintenance {
	return &Maintenance{client: d.client, member: m}
}

// PercentFull returns how full the database is, in percent of the quota. etcd writes in batches: it
// knows its size a tenth of a second later.
func (m *Maintenance) PercentFull() int {
	quota := m.member.quota
	size := m.member.etcd.Server.Backend().Size()
	return int(min(100, (size*100+quota-1)/quota)) // rounded up: 0 means not known
}

// Run looks at the database until the context ends.
func (m *Maintenance) Run(ctx context.Context, complain func(error)) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	said := ""
	for {
		text := ""
		if err := m.FreeSpaceIfNeeded(ctx); err != nil && ctx.Err() == nil {
			if text = err.Error(); text != said { // once, not every five seconds
				complain(err)
			}
		}
		said = text
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// FreeSpaceIfNeeded frees space if that is needed and possible.
func (m *Maintenance) FreeSpaceIfNeeded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, spaceTimeout)
	defer cancel()
	now, err := m.client.Status(ctx, m.member.Endpoint())
	if err != nil {
		return fmt.Errorf("the database of etcd: %w", err)
	}
	alarm := slices.ContainsFunc(now.Errors, func(text string) bool {
		return strings.Contains(text, etcdserverpb.AlarmType_NOSPACE.String())
	})
	if now.IsLearner || !alarm && m.PercentFull() < shortFrom {
		return nil
	}
	if now, err = m.freeSpace(ctx, now, alarm); err != nil {
		return fmt.Errorf("cannot free space in the database of etcd: %w", err)
	}
	if !alarm && m.PercentFull() == 100 {
		return fmt.Errorf("the database of etcd is full: %d MiB of %d are in use, and weir-store "+
			"takes only removals; deleted texts of rules free space soon, otherwise remove hosts",
			now.DbSizeInUse>>20, m.member.quota>>20)
	}
	if !alarm {
		return nil
	}
	if now.DbSize > now.DbSizeQuota-now.DbSizeQuota/32 {
		return fmt.Errorf("the database of etcd is full and takes nothing: %d MiB of %d are in "+
			"use; deleted texts of rules free space soon, otherwise restore a backup",
			now.DbSizeInUse>>20, now.DbSizeQuota>>20)
	}
	alarms, err := m.alarms(ctx)
	if err != nil {
		return fmt.Errorf("the alarms of etcd: %w", err)
	}
	for _, a := range alarms {
		// That of another member, too: it may be gone. If it is full, it raises the alarm again.
		if _, err := m.client.AlarmDisarm(ctx, a); err != nil {
			return fmt.Errorf("cannot end the alarm of etcd: %w", err)
		}
	}
	return nil
}

// freeSpace drops history, and gives free pages back to the file system.
func (m *Maintenance) freeSpace(ctx context.Context, now *clientv3.StatusResponse, alarm bool) (
	*clientv3.StatusResponse, error) {
	before := m.revision
	if alarm || m.PercentFull() == 100 { // no one can write anyway
		before = now.Header.Revision
	}
	short := alarm || m.PercentFull() >= noneFrom
	if short || m.at.IsZero() || time.Since(m.at) >= shortHistory {
		m.revision, m.at = now.Header.Revision, time.Now()
	} else {
		before = 0 // dropped already
	}
	if before > 0 {
		_, err := m.client.Compact(ctx, before, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return now, err
		}
	}
	endpoint := m.member.Endpoint()
	now, err := m.client.Status(ctx, endpoint)
	if err != nil {
		return now, err
	}
	gain := now.DbSize - now.DbSizeInUse
	if gain < m.member.quota/64 || !short && gain < m.member.quota/16 {
		return now, nil
	}
	if err := m.defragment(ctx, alarm); err != nil {
		return now, err
	}
	return m.client.Status(ctx, endpoint)
}

// defragKey is where the member that defragments has its lock, outside of what weir-store serves.
const defragKey = "/weir/defragment"

// defragment gives free pages back. The member answers nothing until what is in use was written
// again. So one member does that at a time, and another one that wants to leaves it to a later
// look. With an alarm etcd takes no lock. It takes no other writes either, so no member waits then.
func (m *Maintenance) defragment(ctx context.Context, alarm bool) error {
	if alarm {
		_, err := m.client.Defragment(ctx, m.member.Endpoint())
		return err
	}
	lease, err := concurrency.NewSession(m.client, concurrency.WithContext(ctx),
		concurrency.WithTTL(int(spaceTimeout/time.Second)))
	if err != nil {
		return err
	}
	err = concurrency.NewMutex(lease, defragKey).TryLock(ctx)
	if errors.Is(err, concurrency.ErrLocked) {
		return lease.Close()
	}
	if err != nil {
		return errors.Join(err, lease.Close())
	}
	if _, err := m.client.Defragment(ctx, m.member.Endpoint()); err != nil {
		lease.Orphan() // the member may still be at it: the lock ends with the lease
		return err
	}
	return lease.Close()
}

// alarms returns those about space, of all members. It costs a write of the log of etcd.
func (m *Maintenance) alarms(ctx context.Context) (all []*clientv3.AlarmMember, err error) {
	got, err := m.client.AlarmList(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range got.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			all = append(all, (*clientv3.AlarmMember)(a))
		}
	}
	return all, nil
}
