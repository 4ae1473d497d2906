package members

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// A backup is lines of JSON: a header, one entry each, and the SHA-256 of all lines before.

type backupHeader struct {
	Weir     string `json:"weir"` // backupKind
	Version  int    `json:"version"`
	Revision int64  `json:"revision"`
	Entries  int    `json:"entries"`
}

type backupEntry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func isInvite(e store.Entry) bool { return strings.HasPrefix(e.Key, cluster.InviteTree) }

type backupEnd struct {
	SHA256 string `json:"sha256"`
}

const (
	backupKind    = "backup of a cluster"
	backupVersion = 1
	// maxBackupLine is a value of store.MaxBytes as Base64, with its key.
	maxBackupLine = 2 << 20
)

// Backup writes the content of the store at one revision, except invitations. A reader of the
// backup must not be able to join, and a restored invitation would let a token be used again. It
// returns the keys of what it leaves out beside that, since no restore could write it.
func Backup(ctx context.Context, s store.Store, to io.Writer) (entries int, leftOut []string,
	err error) {
	all, err := s.Read(ctx, cluster.Root, 0)
	if err != nil {
		return 0, nil, err
	}
	all.Entries = slices.DeleteFunc(all.Entries, func(e store.Entry) bool {
		if !writable(e) {
			leftOut = append(leftOut, e.Key)
			return true
		}
		return isInvite(e)
	})
	sum := sha256.New()
	w := bufio.NewWriter(to)
	line := func(v any, into io.Writer) error {
		text, err := json.Marshal(v)
		if err == nil {
			_, err = into.Write(append(text, '\n'))
		}
		return err
	}
	both := io.MultiWriter(w, sum)
	if err := line(backupHeader{backupKind, backupVersion, all.Revision, len(all.Entries)},
		both); err != nil {
		return 0, nil, err
	}
	for _, e := range all.Entries {
		if err := line(backupEntry{e.Key, e.Value}, both); err != nil {
			return 0, nil, err
		}
	}
	if err := line(backupEnd{hex.EncodeToString(sum.Sum(nil))}, w); err != nil {
		return 0, nil, err
	}
	return len(all.Entries), leftOut, w.Flush()
}

// writable reports whether a transaction can write an entry, whose key stays the same in JSON. An
// attacker in the store, who writes into etcd, could otherwise keep every later backup from being
// restored.
func writable(e store.Entry) bool {
	return utf8.ValidString(e.Key) && store.Txn{Put: []store.Entry{e}}.Check() == nil
}

// ReadBackup reads a backup, and refuses one that is not whole.
func ReadBackup(from io.Reader) ([]store.Entry, error) {
	sum := sha256.New()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxBackupLine)
	var header backupHeader
	if err := backupLine(lines, sum, &header); err != nil {
		return nil, err
	}
	if header.Weir != backupKind || header.Version != backupVersion {
		return nil, fmt.Errorf("not a %s of version %d", backupKind, backupVersion)
	}
	var entries []store.Entry
	for range header.Entries {
		var e backupEntry
		if err := backupLine(lines, sum, &e); err != nil {
			return nil, err
		}
		if !store.Covers(cluster.Root, e.Key) {
			return nil, fmt.Errorf("a backup has no key %q", e.Key)
		}
		entries = append(entries, store.Entry{Key: e.Key, Value: e.Value})
	}
	want := hex.EncodeToString(sum.Sum(nil))
	var end backupEnd
	if err := backupLine(lines, sum, &end); err != nil {
		return nil, err
	}
	if end.SHA256 != want || lines.Scan() {
		return nil, errors.New("the backup is damaged: its checksum differs")
	}
	return entries, lines.Err()
}

func backupLine(lines *bufio.Scanner, sum hash.Hash, into any) error {
	if !lines.Scan() {
		return fmt.Errorf("the backup ends too early: %w", errors.Join(lines.Err(),
			io.ErrUnexpectedEOF))
	}
	sum.Write(lines.Bytes())
	sum.Write([]byte{'\n'})
	if err := json.Unmarshal(lines.Bytes(), into); err != nil {
		return fmt.Errorf("the backup is damaged: %w", err)
	}
	return nil
}
