// pgx, without an ORM: a pool with prepared statements, and the calls of ../behaviours.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

const create = "INSERT INTO carts (id, owner, doc) VALUES ($1, $2, $3)"

var (
	background = context.Background()
	pool       *pgxpool.Pool
)

type cart struct {
	ID    string          `json:"id"`
	Owner string          `json:"owner"`
	Doc   json.RawMessage `json:"doc"`
}

type differences struct {
	StaleSave    *string `json:"stale_save"`
	StaleDestroy *string `json:"stale_destroy"`
	SchemaTool   bool    `json:"schema_tool"`
	HidesOrphans bool    `json:"hides_orphans"`
}

func migrate() (any, error) {
	for _, statement := range []string{
		"CREATE TABLE carts (id text PRIMARY KEY, owner text NOT NULL UNIQUE, doc jsonb NOT NULL)",
		"CREATE TABLE items (id integer PRIMARY KEY, cart_id text NOT NULL REFERENCES carts ON DELETE CASCADE, sku text NOT NULL)",
		"SELECT ttl_docs.adopt('carts', 3600)",
	} {
		if _, err := pool.Exec(background, statement); err != nil {
			return nil, err
		}
	}
	return differences{}, nil
}

// Runs a statement, and returns its number of rows.
func execute(sql string, args ...any) (any, error) {
	tag, err := pool.Exec(background, sql, args...)
	return tag.RowsAffected(), err
}

// Runs a statement for which the caller expects no result.
func run(sql string, args ...any) (any, error) {
	_, err := pool.Exec(background, sql, args...)
	return nil, err
}

func column(sql string, args ...any) (any, error) {
	result := []string{}
	var value string
	_, err := pool.QueryFunc(background, sql, args, []any{&value}, func(pgx.QueryFuncRow) error {
		result = append(result, value)
		return nil
	})
	return result, err
}

func read(id any) (any, error) {
	var found cart
	err := pool.QueryRow(background, "SELECT id, owner, doc FROM carts WHERE id = $1", id).Scan(&found.ID, &found.Owner, &found.Doc)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return found, err
}

func createMany(rows []any) (any, error) {
	batch := &pgx.Batch{}
	for _, row := range rows {
		batch.Queue(create, row.([]any)...)
	}
	// A batch is one transaction.
	return nil, pool.SendBatch(background, batch).Close()
}

func itemsOf(id any) (any, error) {
	if found, err := read(id); found == nil {
		return nil, err
	}
	return column("SELECT sku FROM items WHERE cart_id = $1 ORDER BY id", id)
}

func cartsOfItems() (any, error) {
	result := [][]*string{}
	var sku, cart *string
	sql := "SELECT sku, carts.id FROM items LEFT JOIN carts ON carts.id = cart_id ORDER BY items.id"
	_, err := pool.QueryFunc(background, sql, nil, []any{&sku, &cart}, func(pgx.QueryFuncRow) error {
		result = append(result, []*string{sku, cart})
		return nil
	})
	return result, err
}

func failingTransaction(id any) (any, error) {
	transaction, err := pool.Begin(background)
	if err != nil {
		return nil, err
	}
	if _, err = transaction.Exec(background, create, id, "ann", map[string]any{}); err != nil {
		return nil, err
	}
	return nil, transaction.Rollback(background)
}

func dispatch(call string, args []any) (any, error) {
	switch call {
	case "migrate":
		return migrate()
	case "create":
		return run(create, args...)
	case "create_many":
		return createMany(args[0].([]any))
	case "read":
		return read(args[0])
	case "list":
		return column("SELECT id FROM carts ORDER BY id")
	case "count":
		var count int
		err := pool.QueryRow(background, "SELECT count(*) FROM carts").Scan(&count)
		return count, err
	case "update":
		return execute("UPDATE carts SET doc = $2 WHERE id = $1", args...)
	case "update_all":
		return execute("UPDATE carts SET doc = $1", args...)
	case "touch":
		return execute("UPDATE carts SET _ts = DEFAULT WHERE id = $1", args...)
	case "remove":
		return execute("DELETE FROM carts WHERE id = $1", args...)
	case "upsert":
		return run(create+" ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, doc = excluded.doc", args...)
	case "add_item":
		return run("INSERT INTO items (id, cart_id, sku) VALUES ($1, $2, $3)", args...)
	case "items_of":
		return itemsOf(args[0])
	case "carts_of_items":
		return cartsOfItems()
	case "failing_transaction":
		return failingTransaction(args[0])
	}
	return nil, fmt.Errorf("unknown call %s", call)
}

func answer(line []byte) map[string]any {
	var call struct {
		Call string
		Args []any
	}
	if err := json.Unmarshal(line, &call); err != nil {
		return map[string]any{"error": map[string]any{"message": err.Error()}}
	}
	result, err := dispatch(call.Call, call.Args)
	if err == nil {
		return map[string]any{"result": result}
	}
	failure := map[string]any{"message": err.Error()}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		failure["sqlstate"] = server.Code
	}
	return map[string]any{"error": failure}
}

func main() {
	var err error
	// The PG... variables of the environment name the server.
	if pool, err = pgxpool.Connect(background, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer pool.Close()
	output := json.NewEncoder(os.Stdout)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		if err := output.Encode(answer(input.Bytes())); err != nil {
			return
		}
	}
}
