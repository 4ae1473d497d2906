package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/eyeballs/dns"
)

// racer is a dialer that resolves dual.test to ::1 and 127.0.0.1 and records its attempts.
type racer struct {
	eyeballs.Dialer
	mu    sync.Mutex
	tried []string // guarded by mu
}

func newRacer(t *testing.T) *racer {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"hosts": "::1 dual.test\n127.0.0.1 dual.test\n",
		"resolv.conf": "nameserver [127.0.0.1]:1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &racer{}
	r.DNS, r.History = &dns.Resolver{Dir: dir}, &eyeballs.History{}
	r.Trace = func(e eyeballs.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.Kind == eyeballs.EventConnecting || e.Kind == eyeballs.EventWon {
			r.tried = append(r.tried, e.Kind.String()+" "+e.Addr.String())
		}
	}
	return r
}

// raced checks that the first attempt went to the refusing address, and that the other one won. On
// a busy machine the second attempt begins before the first one has failed.
func (r *racer) raced(t *testing.T, port string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	want := []string{"connecting [::1]:" + port, "connecting 127.0.0.1:" + port,
		"won 127.0.0.1:" + port}
	if !slices.Equal(r.tried[:min(3, len(r.tried))], want) {
		t.Errorf("attempts %q, want %q", r.tried, want)
	}
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	go s.Serve(l)
	defer s.Stop()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	d := newRacer(t)
	// With passthrough, gRPC passes the name on unresolved.
	c, err := grpc.NewClient("passthrough:///dual.test:"+port,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(c).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{})
	if err != nil || answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v %v", answer, err)
	}
	d.raced(t, port)
}

func TestPostgreSQL(t *testing.T) {
	port := startPostgres(t)
	d := newRacer(t)
	config, err := pgx.ParseConfig(fmt.Sprintf("host=dual.test port=%s user=weir dbname=postgres "+
		"sslmode=disable", port))
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = d.DialContext
	// Without this the driver resolves the name itself and tries one address after the other.
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		return []string{host}, nil
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	var row *sql.Row
	for try := 0; ; try++ { // the server listens some time after its start
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		row = db.QueryRowContext(ctx, "select inet_server_addr()::text, 6*7")
		var at string
		var n int
		err := row.Scan(&at, &n)
		cancel()
		if err == nil {
			if a, _ := netip.ParsePrefix(at); a.Addr().String() != "127.0.0.1" &&
				at != "127.0.0.1" || n != 42 {
				t.Errorf("answer %q %d", at, n)
			}
			break
		}
		if try == 3000 {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		d.mu.Lock()
		d.tried = nil
		d.mu.Unlock()
		d.History.Forget()
	}
	d.raced(t, port)
}

// startPostgres starts a new database server on 127.0.0.1 and returns its port.
func startPostgres(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatal("no PostgreSQL on this machine")
		}
		t.Skip("SKIPPED: no PostgreSQL on this machine")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "weir-postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", dir, "-U", "weir", "--auth=trust",
		"--no-sync", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = attr, "/"
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	port := reservePort(t)
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", dir, "-p", port, "-c",
		"listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off")
	var stderr strings.Builder
	server.SysProcAttr, server.Dir, server.Stderr = attr, "/", &stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGINT) // fast shutdown
		server.Wait()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	return port
}

// reservePort returns a port of 127.0.0.1 that no other program gets during the test. A server with
// SO_REUSEADDR may listen there: the socket that holds the port does not.
func reservePort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(at.(*syscall.SockaddrInet4).Port)
}

func TestOnlyRefusesAnUnknownPart(t *testing.T) {
	if err := run(1, "fault", ""); err == nil || !strings.Contains(err.Error(), "faults") {
		t.Errorf("error %v", err)
	}
}
