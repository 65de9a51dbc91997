// What users of franz-go and sarama do: records in each codec, groups, administration, schemas.
//
// Usage: golang <client> <task> <bootstrap> [<user> <password> <CA file>]; instead of <bootstrap>,
// the client "schemas" takes a file that says where and what.
//
// It prints what it saw as JSON, and ends with status 1 at the first thing that is wrong.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	patience   = 4 * time.Minute
	partitions = 6
	count      = 300
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// login is who a client says it is; nil for a gateway without security.
type login struct {
	user, password string
	tls            *tls.Config
}

type task func(ctx context.Context, bootstrap string, as *login) (any, error)

var tasks = map[string]task{
	"franz records":      franzRecords,
	"franz cooperative":  franzCooperative,
	"franz server":       franzServer,
	"franz admin":        franzAdmin,
	"franz transactions": franzTransactions,
	"sarama records":     saramaRecords,
	"sarama range":       saramaRange,
	"sarama roundrobin":  saramaRoundRobin,
	"sarama sticky":      saramaSticky,
	"sarama admin":       saramaAdmin,
	"schemas write":      schemasWrite,
	"schemas read":       schemasRead,
	"schemas calls":      schemasCalls,
}

func main() {
	if len(os.Args) < 4 {
		fail(fmt.Errorf("usage: %s <client> <task> <bootstrap> [<user> <password> <CA file>]", os.Args[0]))
	}
	do, known := tasks[strings.Join(os.Args[1:3], " ")]
	if !known {
		fail(fmt.Errorf("there is no task %q", os.Args[1:3]))
	}
	as, err := loginOf(os.Args[4:])
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seen, err := do(ctx, os.Args[3], as)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		fail(err)
	}
}

func loginOf(arguments []string) (*login, error) {
	if len(arguments) != 3 {
		return nil, nil
	}
	pem, err := os.ReadFile(arguments[2])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", arguments[2])
	}
	return &login{arguments[0], arguments[1], &tls.Config{RootCAs: roots}}, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// value is what record `number` holds; numbers of one partition rise.
func value(number int) string {
	return fmt.Sprintf("%d %s", number, strings.Repeat("x", 100))
}

// reads counts what the members of a group have read together.
type reads map[string]int

// complete tells whether every record was read.
func (seen reads) complete(total int) bool {
	return len(seen) == total
}

func (seen reads) repeated() int {
	more := 0
	for _, times := range seen {
		more += times - 1
	}
	return more
}
