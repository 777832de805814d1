"""A database as an MCP server, for the demo: 8 tools over a small SQLite shop held in memory."""

from __future__ import annotations

import csv
import io
import sqlite3
from typing import Any

from stdio_server import Json, MistakeError, Tool, choice, flag, number, serve, several, text

SHOP = """
create table customers (id integer primary key, name text not null, country text not null);
create table orders (
  id integer primary key, customer_id integer not null references customers(id), total_cents integer not null,
  placed_on text not null
);
create index orders_by_customer on orders (customer_id);
insert into customers values (1, 'Ada', 'GB'), (2, 'Grace', 'US'), (3, 'Emmy', 'DE'), (4, 'Konrad', 'DE');
insert into orders values (1, 1, 4200, '2030-01-03'), (2, 2, 1850, '2030-01-04'), (3, 3, 990, '2030-01-04'),
  (4, 3, 12900, '2030-01-09'), (5, 4, 5400, '2030-01-11');
"""
READING = ("select", "with", "explain", "values")
LIMIT = number(
    "Most rows to return. Ask for few first: rows are costly to read.", minimum=1, maximum=1000, default=50
)
TABLE = text("Name of a table or view, as `list_tables` shows it. Case matters on some systems.")
CONNECTION = text("Name of the connection to use, where the server has more than one.", default="main")
PARAMETERS = several(
    "Values for the `?` placeholders in the statement, in their order. Always use these instead of writing values into "
    "the statement.",
    {"type": ["string", "number", "boolean", "null"]},
)

base = sqlite3.connect(":memory:")
base.row_factory = sqlite3.Row
base.executescript(SHOP)


def rows(sql: str, parameters: Any = (), limit: int = 50) -> list[Json]:
    try:
        return [dict(row) for row in base.execute(sql, parameters).fetchmany(limit)]
    except sqlite3.Error as problem:
        raise MistakeError(f"{problem}. describe_table shows the columns.") from None


def known(table: str) -> str:
    if not rows("select 1 from sqlite_master where type in ('table', 'view') and name = ?", [table]):
        raise MistakeError(f"There is no table {table}; list_tables shows those there are.")
    return table


def query(args: Json) -> object:
    if not args["sql"].lstrip().lower().startswith(READING):
        raise MistakeError("query only reads; use execute to change data.")
    return rows(args["sql"], args.get("parameters", ()), args.get("limit", 50))


def execute(args: Json) -> object:
    try:
        with base:
            changed = base.execute(args["sql"], args.get("parameters", ())).rowcount
            if args.get("dry_run"):
                base.rollback()
    except sqlite3.Error as problem:
        raise MistakeError(str(problem)) from None
    return {"changed": changed, "dry_run": bool(args.get("dry_run"))}


def list_tables(_args: Json) -> object:
    names = [row["name"] for row in rows("select name from sqlite_master where type in ('table', 'view')")]
    return [{"table": name, "rows": rows(f'select count(*) as n from "{name}"')[0]["n"]} for name in names]


def describe_table(args: Json) -> object:
    columns = rows(f'pragma table_info("{known(args["table"])}")')
    return [
        {"column": c["name"], "type": c["type"], "nullable": not c["notnull"], "key": bool(c["pk"])}
        for c in columns
    ]


def list_indexes(args: Json) -> object:
    return rows(f'pragma index_list("{known(args["table"])}")')


def explain(args: Json) -> object:
    return [row["detail"] for row in rows(f"explain query plan {args['sql']}", args.get("parameters", ()))]


def sample(args: Json) -> object:
    order = "random()" if args.get("random", True) else "1"
    return rows(f'select * from "{known(args["table"])}" order by {order} limit ?', [args.get("limit", 5)])


def export(args: Json) -> object:
    found = query(
        {"sql": args["sql"], "parameters": args.get("parameters", ()), "limit": args.get("limit", 1000)}
    )
    assert isinstance(found, list)
    if args.get("format", "csv") == "json":
        return found
    written = io.StringIO()
    writer = csv.DictWriter(written, list(found[0]) if found else [])
    writer.writeheader()
    writer.writerows(found)
    return written.getvalue()


TOOLS = [
    Tool(
        "query",
        "Run one SQL statement that only reads (SELECT, WITH, EXPLAIN, VALUES) and return its rows as objects. "
        "Statements that change data are refused: use `execute`. Look at `list_tables` and `describe_table` first.",
        {
            "sql": text("The statement, without a semicolon at its end.", minLength=6),
            "parameters": PARAMETERS,
            "limit": LIMIT,
            "connection": CONNECTION,
            "timeout_ms": number(
                "Give up after this many milliseconds.", minimum=1, maximum=60000, default=5000
            ),
        },
        ("sql",),
        query,
    ),
    Tool(
        "execute",
        "Run one SQL statement that changes data (INSERT, UPDATE, DELETE) in a transaction of its own. Returns "
        "how many rows changed. Try with `dry_run` first when you are not sure how many rows are meant.",
        {
            "sql": text("The statement, without a semicolon at its end.", minLength=6),
            "parameters": PARAMETERS,
            "dry_run": flag("Roll back at the end, so that nothing changes.", False),
            "connection": CONNECTION,
        },
        ("sql",),
        execute,
        writes=True,
    ),
    Tool(
        "list_tables",
        "List all tables and views with the number of their rows.",
        {"connection": CONNECTION, "include_system": flag("Also list the system's own tables.", False)},
        (),
        list_tables,
    ),
    Tool(
        "describe_table",
        "Show the columns of a table: name, type, whether it may be null, whether it is part of the key.",
        {"table": TABLE, "connection": CONNECTION},
        ("table",),
        describe_table,
    ),
    Tool(
        "list_indexes",
        "Show the indexes of a table and whether they are unique.",
        {"table": TABLE, "connection": CONNECTION},
        ("table",),
        list_indexes,
    ),
    Tool(
        "explain_query",
        "Show how the database would run a statement: which indexes it uses and where it scans a whole table.",
        {
            "sql": text("The statement to explain.", minLength=6),
            "parameters": PARAMETERS,
            "connection": CONNECTION,
        },
        ("sql",),
        explain,
    ),
    Tool(
        "sample_rows",
        "Return a few rows of a table, to see what its data looks like before writing a query.",
        {
            "table": TABLE,
            "limit": number("How many rows.", minimum=1, maximum=100, default=5),
            "random": flag("Choose rows at random instead of the first ones.", True),
            "connection": CONNECTION,
        },
        ("table",),
        sample,
    ),
    Tool(
        "export_rows",
        "Run a reading statement and return its result as one document, for files and attachments.",
        {
            "sql": text("The statement, without a semicolon at its end.", minLength=6),
            "parameters": PARAMETERS,
            "format": choice("Form of the document.", "csv", "json", default="csv"),
            "limit": LIMIT,
            "connection": CONNECTION,
        },
        ("sql",),
        export,
    ),
]

if __name__ == "__main__":
    serve("database", TOOLS, "Amounts of money are in cents. Dates are texts of the form YYYY-MM-DD.")
