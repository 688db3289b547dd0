package store_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"signalbox/internal/fault"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

const password = "hunter2"

// openFails opens an address that cannot be opened, and checks what it says.
func openFails(t *testing.T, address string, code fault.Code, says string) {
	t.Helper()
	db, err := store.Open(t.Context(), address)
	if err == nil {
		db.Close()
		t.Fatal("it opened")
	}
	e := fault.From(err)
	if e.Code != code || !strings.Contains(e.Message, says) {
		t.Errorf("got %s: %s", e.Code, e.Message)
	}
	for _, shown := range []string{
		err.Error(), e.Message, fmt.Sprintf("%+v %#v", e, e), fmt.Sprintf("%+v", e.Cause),
		fmt.Sprint(e.Details),
	} {
		if strings.Contains(shown, password) {
			t.Errorf("the password is shown: %s", shown)
		}
	}
}

func TestAPostgreSQLThatCannotBeReachedIsExplained(t *testing.T) {
	t.Parallel()
	openFails(t, "postgres://me:"+password+"@"+testbed.FreeAddress(t)+"/x", fault.StoreUnavailable,
		"PostgreSQL cannot be reached.")
}

func TestAnUnknownDatabaseIsExplained(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/nowhere"
	u.User = url.UserPassword(u.User.Username(), password)
	openFails(t, u.String(), fault.StoreUnavailable, "The database named in the address does not exist.")
}

func TestAWrongPasswordIsExplainedAndNotRepeated(t *testing.T) {
	t.Parallel()
	// A PostgreSQL that knows nobody.
	l := testbed.Serve(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		server := pgproto3.NewBackend(conn, conn)
		if _, err := server.ReceiveStartupMessage(); err == nil {
			server.Send(&pgproto3.AuthenticationCleartextPassword{})
			_ = server.Flush()
			_, _ = server.Receive()
			server.Send(&pgproto3.ErrorResponse{
				Severity: "FATAL", Code: "28P01",
				Message: `password authentication failed for user "me"`,
			})
			_ = server.Flush()
		}
	})
	openFails(t, "postgres://me:"+password+"@"+l.Addr().String()+"/x?sslmode=disable", fault.StoreUnavailable,
		"PostgreSQL refuses the user or password")
}

func TestAnAddressThatIsNoneIsExplainedWithoutItsPassword(t *testing.T) {
	t.Chdir(t.TempDir()) // a slip must not leave a file either
	for _, address := range []string{
		"postgres://me:" + password + "@host:notaport/x",
		"postgres://me:" + password + "@host:99999/x",
		"postgres://me:" + password + "%zz@host/x",
		"postgres://me:" + password + "@host/x?sslmode=wrong",
		"postgres://me:" + password + "@host/x?pool_max_conns=many",
		"postgres://me:" + password + "@host/x?sslrootcert=/nowhere/" + password,
		"postgres://me:" + password + "@[::1/x",
		"postgresql://me:" + password + "@host:/x y",
		"postgres:/me:" + password + "@host/x",
		"postgres:me:" + password + "@host/x",
		"mysql://me:" + password + "@host/x",
		"Postgres://me:" + password + "@host/x",
		"host=localhost password=" + password,
		"password=" + password,
	} {
		openFails(t, address, fault.InvalidConfig, "postgres://user")
	}
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAFileThatCannotBeOpenedIsExplained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testbed.Write(t, file, strings.Repeat("this is not a database\n", 100))
	for _, c := range []struct {
		name, path string
		code       fault.Code
		says       string
	}{
		{
			"a folder that does not exist", filepath.Join(dir, "nowhere", "signalbox.db"), fault.StoreReadOnly,
			"Check that its folder exists",
		},
		{"below a file", filepath.Join(file, "signalbox.db"), fault.StoreReadOnly, "cannot be opened for writing"},
		{"a folder", dir, fault.StoreReadOnly, "cannot be opened for writing"},
		{"not a database", file, fault.StoreUnavailable, "is damaged or is not a Signalbox database"},
	} {
		t.Run(c.name, func(t *testing.T) { openFails(t, c.path, c.code, c.says) })
	}
}

func TestAPathMayHoldAnyCharacter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%41&_pragma=x;ä'", "signal:box.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	db := storetest.Open(t, path, notes)
	tx := begin(t, db)
	tx.Exec(insertNote, 1, "a")
	commit(t, tx)
	wantNames(t, db, "a")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestWhatPostgreSQLAnswersIsExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state string
		code  fault.Code // "" for what is left as it is
	}{
		{"53100", fault.StoreFull},
		{"25006", fault.StoreReadOnly},
		{"42501", fault.StoreReadOnly},
		{"28P01", fault.StoreUnavailable},
		{"28000", fault.StoreUnavailable},
		{"3D000", fault.StoreUnavailable},
		{"55P03", fault.StoreUnavailable},
		{"08006", fault.StoreUnavailable},
		{"57P01", fault.StoreUnavailable},
		{"53300", fault.StoreUnavailable},
		{"25P03", fault.StoreUnavailable},
		{"23505", ""},
		{"42P01", ""},
	} {
		cause := &pgconn.PgError{Severity: "ERROR", Code: c.state, Message: "words of the driver"}
		err := store.Explain(fmt.Errorf("doing something: %w", cause))
		e, explained := errors.AsType[*fault.Error](err)
		if explained != (c.code != "") || !errors.Is(err, cause) {
			t.Errorf("%s: got %v", c.state, err)
		}
		if explained && (e.Code != c.code || strings.Contains(e.Message, "words of the driver")) {
			t.Errorf("%s: got %s: %s", c.state, e.Code, e.Message)
		}
	}
}

func TestWhatIsNoErrorOfADatabaseIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	if store.Explain(nil) != nil {
		t.Error("nil is explained")
	}
	for _, err := range []error{errors.New("other"), fault.New(fault.NotFound, "There is none.")} {
		if diff := cmp.Diff(err.Error(), store.Explain(err).Error()); diff != "" {
			t.Error(diff)
		}
	}
}
