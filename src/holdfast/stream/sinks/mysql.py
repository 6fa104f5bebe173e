"""The batch ledger's database in MySQL or MariaDB, through PyMySQL.

The driver formats values one at a time in Python; this module formats complete columns with Arrow.
"""

from __future__ import annotations

import configparser
import os
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from holdfast.errors import HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.formats.sql_names import sql_identifier
from holdfast.stream.sinks.database import (
    TASK,
    Change,
    Database,
    PartitionLoader,
    StagedMove,
    breaks_rule,
    came_between,
    does_not_fit,
    gone,
    identifiers,
    lacks_column,
    sink_digest,
)

LOCKED: Final = frozenset((1205,))  # lock wait timeout
CAME_BETWEEN: Final = frozenset((1020, 1213))  # record has changed, deadlock
REPEATED: Final = frozenset((1062, 1169, 1557, 1586))  # a second row of a unique key
_FULL: Final = frozenset((1021, 1114))  # disk full, table is full
_GONE: Final = frozenset((1146,))  # no such table
_LACKS_COLUMN: Final = frozenset((1054,))  # unknown column
_BREAKS_RULE: Final = frozenset(
    (
        *(1048, 1364),  # null, or no value for a column without a default
        *REPEATED,
        *(1216, 1217, 1451, 1452),  # foreign keys
        *(3819, 4025),  # CHECK, in MySQL and in MariaDB
    )
)
_DOES_NOT_FIT: Final = frozenset(
    (
        *(1153, 1406),  # larger than a packet, or than the column
        *(1264, 1367, 1690),  # a number that is too large
        *(1265, 1292, 1366, 1411, 3140, 3854),  # not a value of the type
    )
)
_AWAY: Final = frozenset(
    (
        *(0, *range(2000, 2062)),  # from the client: no connection, or a lost connection
        *(1040, 1129, 1203, 1226),  # too many connections
        *(1042, 1043, 1044, 1045, 1049, 1130),  # access denied, or unknown database
        *(1053, 1077, 1079),  # shutting down
        *(1152, 1158, 1159, 1160, 1161, 1184),  # the network
        *(1290, 1792, 1836),  # read-only, such as a standby
        *(1317, 1927, 3169, 4031),  # ended by a user or administrator
    )
)


def numbered(error: BaseException) -> tuple[int, str]:
    """Return the number and the message of a driver's error, on one line."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else -1
    text = str(error.args[1] if len(error.args) > 1 else error)
    return number, text.partition("\n")[0] or type(error).__name__


def of_server(error: BaseException, address: str, patience_s: float) -> HoldfastError | None:
    """Return the error for a server that is unreachable, full or locked, or None for a wrong statement."""
    number, text = numbered(error)
    if number in LOCKED:
        return Unavailable(
            "the ledger is locked by a different session",
            code="HF-E5057",
            where=address,
            found=f"still locked after {patience_s:g} s",
            hint="find the session with SHOW PROCESSLIST; start the query again once the session has ended",
        )
    if number in CAME_BETWEEN:
        return came_between(address, text)
    if number in _FULL:
        return Unavailable(
            "the disk of the MySQL server is full",
            code="HF-E5058",
            where=address,
            found=text,
            hint="free space on the server's disk, then start the query again: it repeats the batch",
        )
    if number in _AWAY:
        return Unavailable(
            "the ledger's MySQL server is unreachable, or ended the session",
            code="HF-E5059",
            where=address,
            found=text,
            hint="check the server with `mysqladmin ping`, then start the query again: it resumes",
        )
    return None


def of_table(error: BaseException, address: str, table: str) -> HoldfastError | None:
    """Return the error for a table that rejects a batch's rows, or None for any other cause."""
    number, text = numbered(error)
    for numbers, told in (
        (_GONE, gone),
        (_LACKS_COLUMN, lacks_column),
        (_BREAKS_RULE, breaks_rule),
        (_DOES_NOT_FIT, does_not_fit),
    ):
        if number in numbers:
            return told(table, address, text)
    return None


# By default a server accepts packets of 16 MiB or more. A longer row gets its own statement.
MOST_CHARACTERS: Final = 1 << 20


def insert_statements(table: str, batch: Any, task: int) -> Iterator[str]:
    """Yield statements that insert a batch's rows into a staging table, each with many rows.

    Args:
        table: The table as an SQL name.
        batch: An Arrow record batch.
        task: The value for the task column.

    Raises:
        Invalid: A number is infinite, which MySQL cannot store.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ", ".join([*map(sql_identifier, batch.schema.names), TASK])
    head = f"INSERT INTO {table} ({names}) VALUES "  # noqa: S608  quoted names
    columns = zip(batch.schema.names, batch.columns, strict=True)
    parts = [pc.fill_null(_literals(name, column), "NULL") for name, column in columns]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(f"{task})"), ",").to_pylist()
    begin, length = 0, 0
    for at, row in enumerate(rows):
        if at > begin and length + len(row) > MOST_CHARACTERS:
            yield head + "(" + ",(".join(rows[begin:at])
            begin, length = at, 0
        length += len(row) + 2
    if rows:
        yield head + "(" + ",(".join(rows[begin:])


def _literals(name: str, column: Any) -> Any:
    """Return a column's values as SQL literals; null stays null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        if pc.any(pc.is_inf(column)).as_py():
            raise Invalid(
                f"the column {name!r} of the batch has an infinite number, which MySQL cannot store",
                code="HF-E2369",
                found="inf or -inf",
                expected="finite numbers, NaN or null",
                hint="filter such rows out, or replace the number with null, then start the query again;"
                " no row of the batch was written",
            )
        number = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        return number.cast(pa.float64()).cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
        return pa.array(values, pa.string())
    if pa.types.is_timestamp(kind):
        # A timestamp is written in UTC, without a time zone.
        column = column.cast(pa.timestamp("us"))
    text = column.cast(pa.string())
    for sign in ("\\", "'"):
        text = pc.replace_substring(text, sign, "\\" + sign)
    return pc.binary_join_element_wise("'", text, "'", "")


_LOGIN: Final = ("user", "password")
# The parts of option names that begin with `ssl-`.
_CERTIFICATES: Final = ("ca", "capath", "cert", "key", "password", "cipher")


def client_options() -> dict[str, Any]:
    """Return the login and the certificates for the driver, from the group `[client]` of `~/.my.cnf`.

    The address is not read, because a `socket` could refer to a different server than the ledger's address.

    Raises:
        Invalid: The file cannot be read or parsed.
    """
    file = os.path.expanduser("~/.my.cnf")  # noqa: PTH111  that of Path fails for a user without a home
    parser = _Options(allow_no_value=True, strict=False)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        raise Invalid(
            "cannot read the MySQL option file",
            code="HF-E2370",
            where=file,
            expected="a section [client] with lines such as password=…",
            hint="fix the file or its permissions; `mysql --print-defaults` shows its contents",
        ) from None  # the error message contains a line of the file, possibly with the password
    found: dict[str, Any] = {name: parser.option(name) for name in _LOGIN}
    found["ssl"] = {name: value for name in _CERTIFICATES if (value := parser.option(f"ssl-{name}"))}
    return {name: value for name, value in found.items() if value}


class _Options(configparser.RawConfigParser):
    """A parser of MySQL option files, which allow `_` for `-` in a name and quotes around a value."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr.lower().replace("_", "-")

    def option(self, name: str) -> str | None:
        value = self.get("client", name, fallback=None)
        quoted = value and len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
        return value[1:-1] if value and quoted else value


COLUMN_TYPES: Final = {
    "tinyint": "SMALLINT",  # many clients treat MySQL's TINYINT(1) as a boolean
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "DOUBLE",  # FLOAT is displayed with six digits
    "double": "DOUBLE",
    "decimal": "DECIMAL",
    "string": "LONGTEXT",
    "boolean": "BOOLEAN",
    "timestamp": "DATETIME(6)",  # TIMESTAMP ends in 2038
    "timestamp_ntz": "DATETIME(6)",
    "date": "DATE",
    "binary": "LONGBLOB",
}
# A Spark decimal may have more digits after the point than a MySQL decimal.
MOST_SCALE: Final = 30
# A key has at most 3,072 bytes, and a character up to four. The rest is for numeric key columns.
KEY_CHARACTERS: Final = 700
OLDEST: Final = {"MySQL": (8, 0, 17), "MariaDB": (10, 2, 0)}
# Collations that compare texts byte by byte, including spaces at the end.
COLLATIONS: Final = {"MySQL": "utf8mb4_0900_bin", "MariaDB": "utf8mb4_nopad_bin"}
# Strict mode, because otherwise a value that does not fit is truncated; and names in double quotes.
MODE: Final = "ANSI_QUOTES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO"


def driver() -> ModuleType:
    """Return the pymysql module, loaded when the first ledger needs it.

    Raises:
        Unavailable: The driver is not installed.
    """
    try:
        import pymysql
    except ImportError as error:
        raise Unavailable(
            "the MySQL driver is not installed",
            code="HF-E5060",
            found=str(error),
            hint="run `pip install 'holdfast[mysql]'`",
        ) from error
    module: ModuleType = pymysql
    return module


class MySQLSession:
    """A connection of PyMySQL with an `execute` method, as in other drivers."""

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    def execute(self, statement: str, values: Any = ()) -> Any:
        """Run a statement and return the driver's cursor."""
        cursor = self.raw.cursor()
        # None instead of an empty tuple: with values the driver replaces placeholders, and a name may contain
        # `%`.
        cursor.execute(statement, values or None)
        return cursor

    def cursor(self) -> Any:
        """Return a cursor of the driver's connection."""
        return self.raw.cursor()

    def close(self) -> None:
        """Close the connection, which rolls back uncommitted changes."""
        if self.raw.open:
            self.raw.close()


@dataclass(frozen=True, slots=True)
class MySQL(Database):
    """A ledger's database in MySQL or MariaDB. In the ledger, a batch locks only the row of its sink."""

    mark = "%s"
    begins = "START TRANSACTION"
    row_lock = " FOR UPDATE"
    own_schema = "database()"
    drops_within = False  # DROP TABLE would commit the batch
    claims = """
        INSERT INTO holdfast_fence (sink, token, claimed_ms, owner)
        SELECT sink, token, claimed_ms, owner FROM (
            SELECT ? AS sink, ? AS token, ? AS claimed_ms, ? AS owner, ? AS above) AS claim
        ON DUPLICATE KEY UPDATE
          claimed_ms = IF(holdfast_fence.token < claim.above, claim.claimed_ms, holdfast_fence.claimed_ms),
          owner = IF(holdfast_fence.token < claim.above, claim.owner, holdfast_fence.owner),
          token = IF(holdfast_fence.token < claim.above,
                     GREATEST(holdfast_fence.token + 1, claim.token), holdfast_fence.token)"""

    url: str = field(repr=False)  # may contain a password
    patience_s: float

    def __post_init__(self) -> None:
        driver()
        _arguments(self.url)

    @property
    def address(self) -> str:
        """Return the host, port and database, without user and password."""
        parts = _arguments(self.url)
        return f"mysql://{parts['host']}:{parts['port']}/{parts['database']}"

    def connect(self, sink: str, token: int | None = None) -> MySQLSession:
        """Connect; the session of an owner holds a named lock by which a later owner can find and end it."""
        session = self._open()
        try:
            _make_tables(session, self.table_options(session))
            if token is not None:
                with suppress(driver().Error):  # some clusters lack named locks, so no session can be ended
                    session.execute("SELECT GET_LOCK(%s, 0)", (_label(sink, token),))
        except BaseException:
            session.close()
            raise
        return session

    def in_transaction(self, connection: MySQLSession) -> bool:
        """Return whether a transaction is open, which only the reply to a successful statement shows."""
        connection.execute("DO 0")
        return bool(connection.raw.server_status & driver().constants.SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def came_between(self, error: BaseException | None, change: Change | None = None) -> bool:
        """Return whether the error is a deadlock, a changed row or, in an upsert, a new row with the same
        key.
        """
        passing = CAME_BETWEEN | REPEATED if change == "upsert" else CAME_BETWEEN
        return error is not None and numbered(error)[0] in passing

    def evict(self, sink: str) -> bool:
        """End the session of the sink's owner. Requires the same user, or the right to end other sessions."""
        try:
            session = self._open()
        except (driver().Error, HoldfastError):
            return False  # the error of the claim is more specific
        try:
            row = session.execute("SELECT token FROM holdfast_fence WHERE sink = %s", (sink,)).fetchone()
            if row is None:
                return False
            label = _label(sink, row[0])
            (owner,) = session.execute("SELECT IS_USED_LOCK(%s)", (label,)).fetchone()
            if owner is None:
                return False
            session.execute(f"KILL {int(owner)}")
            # After the session has ended, its lock is released and its changes are rolled back.
            (ended,) = session.execute("SELECT GET_LOCK(%s, 5)", (label,)).fetchone()
        except driver().Error:
            return False
        finally:
            session.close()
        return bool(ended)

    def translate(self, error: BaseException) -> HoldfastError | None:
        """Return the error for an unreachable or locked server, or None for a wrong statement."""
        if not isinstance(error, driver().Error):
            return None
        return of_server(error, self.address, self.patience_s)

    def refused(self, error: BaseException, table: str) -> HoldfastError | None:
        """Return the error for a missing table, a missing column or a rejected row, or None for others."""
        return of_table(error, self.address, table) if isinstance(error, driver().Error) else None

    def loader(self) -> PartitionLoader:
        """Return this database, to which executors connect directly."""
        return self

    def load_partition(self, table: str, batches: Iterable[Any], task: int) -> int:
        """Insert Arrow batches with multi-row statements, formatted by Arrow without a Python loop."""
        count, session = 0, self._open()
        try:
            session.execute(self.begins)
            for batch in batches:
                for statement in insert_statements(table, batch, task):
                    session.execute(statement)
                count += batch.num_rows
            session.execute("COMMIT")
        finally:
            session.close()
        return count

    def column_type(self, kind: str) -> str | None:
        """Return the SQL type for a Spark type; a decimal keeps its precision and scale."""
        base, bracket, rest = kind.partition("(")
        name = COLUMN_TYPES.get(base)
        if name is None or (bracket and int(rest.rstrip(")").rpartition(",")[2]) > MOST_SCALE):
            return None
        return name + bracket + rest

    def key_type(self, kind: str, keys: int) -> str | None:
        """Return the SQL type of a key column; a string has a maximum length."""
        if kind == "string":
            return f"VARCHAR({KEY_CHARACTERS // keys})"
        if kind == "binary":
            return f"VARBINARY({KEY_CHARACTERS // keys})"
        return self.column_type(kind)

    def table_options(self, connection: MySQLSession) -> str:
        """Return the options for a table with transactions and a collation that compares bytes."""
        return f" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={COLLATIONS[_product(connection)]}"

    def check_table(self, connection: MySQLSession, table: str, keys: Sequence[str]) -> None:
        """Check that a table supports transactions and has a unique index on the key."""
        schema, _, name = table.rpartition(".")
        (engine, keeps) = connection.execute(
            """SELECT t.engine, e.transactions FROM information_schema.tables AS t
               LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
               WHERE t.table_schema = coalesce(%s, database()) AND t.table_name = %s""",
            (schema or None, name),
        ).fetchone() or (None, None)
        if keeps != "YES":
            raise Invalid(
                f"the engine of the table {table!r} has no transactions",
                code="HF-E2371",
                where=self.address,
                found=str(engine),
                hint=f"run `ALTER TABLE {table} ENGINE=InnoDB`",
            )
        if keys and frozenset(name.lower() for name in keys) not in _unique_keys(connection, schema, name):
            raise Invalid(
                f"the table {table!r} has no unique key of the columns {', '.join(keys)}",
                code="HF-E2372",
                where=self.address,
                hint=(
                    f"run `ALTER TABLE {table} ADD UNIQUE ({', '.join(keys)})`, or upsert by the columns"
                    " of an existing unique key"
                ),
            )

    def stage_types(
        self, connection: MySQLSession, table: str, types: Sequence[tuple[str, str]], keys: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Return types that match the table's key columns, so that its index is used and equal keys match."""
        schema, _, name = table.rpartition(".")
        rows = connection.execute(
            """SELECT lower(column_name), column_type, character_set_name, collation_name
               FROM information_schema.columns
               WHERE table_schema = coalesce(%s, database()) AND table_name = %s""",
            (schema or None, name),
        ).fetchall()
        own = {
            column: kind + (f" CHARACTER SET {charset} COLLATE {collation}" if collation else "") + " NULL"
            for column, kind, charset, collation in rows
        }
        return [(column, own.get(column.lower(), kind) if column in keys else kind) for column, kind in types]

    def makes_stage(self, connection: MySQLSession, stage: str, columns: str) -> str:
        """Return the statement with an added primary key, which some servers require for every table."""
        row = "holdfast_row BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY"
        return f"CREATE TABLE {stage} ({columns}, {row}){self.table_options(connection)}"

    def drop_stage(self, connection: MySQLSession, stage: str) -> None:
        """Drop the staging table; wait at most one second for a task that writes to it."""
        connection.execute("SET SESSION lock_wait_timeout = 1")
        try:
            connection.execute(f"DROP TABLE IF EXISTS {stage}")
        except driver().Error as error:
            if numbered(error)[0] not in LOCKED:
                raise
        finally:
            connection.execute("SET SESSION lock_wait_timeout = DEFAULT")

    def moves(self, move: StagedMove) -> tuple[str, ...]:
        """Return the statements; an upsert needs two, because ON DUPLICATE KEY would match any unique key of
        the table.

        The insert comes first: it reads the rows committed before it, the update also those committed since.
        In the opposite order, both would miss a row that a different writer adds between the two.

        Keys that differ only in letters that the table's collation treats as equal are distinguished, so that
        the table rejects the second key and the first row is not overwritten.
        """
        if move.change != "upsert":
            return super(MySQL, self).moves(move)
        names, first = identifiers(move.names), sql_identifier(move.keys[0])
        news = ", ".join(f"new.{sql_identifier(name)}" for name in move.names)
        same = " AND ".join(
            f"old.{name} = new.{name} AND CAST(old.{name} AS BINARY) = CAST(new.{name} AS BINARY)"
            for name in map(sql_identifier, move.keys)
        )
        staged = f"(SELECT {names} FROM {move.stage} WHERE {move.condition}) AS new"  # noqa: S608  quoted names
        insert = (
            f"INSERT INTO {move.table} ({names}) SELECT {news} FROM {staged}"  # noqa: S608  quoted names
            f" LEFT JOIN {move.table} AS old ON {same} WHERE old.{first} IS NULL"
        )
        if not move.others:
            return (insert,)
        sets = ", ".join(f"old.{name} = new.{name}" for name in map(sql_identifier, move.others))
        update = f"UPDATE {move.table} AS old JOIN {staged} ON {same} SET {sets}"  # noqa: S608  quoted names
        return (insert, update)

    def _open(self) -> MySQLSession:
        parts = {**client_options(), **_arguments(self.url)}
        tls = parts.pop("tls")
        if tls is not None:
            parts["ssl"] = _context(tls)
        patience = max(1, round(self.patience_s))
        raw = driver().connect(
            **parts,
            autocommit=True,
            charset="utf8mb4",
            connect_timeout=max(2, patience),
            sql_mode=MODE,
        )
        session = MySQLSession(raw)
        try:
            _require_known(session, self.address)
            session.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            session.execute(f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {patience}")
        except BaseException:
            session.close()
            raise
        return session


def _arguments(url: str) -> dict[str, Any]:
    """Return the driver's arguments for an address.

    `tls` is None without encryption, or the path of the certificate file, which is empty for the system's
    certificates.
    """
    wrong = Invalid(
        "invalid address of a MySQL ledger",
        code="HF-E2373",
        expected="mysql://user@host:port/database, with ?tls=on or ?tls=/path/to/ca.pem",
        hint="percent-encode special characters of user and database; keep the password in ~/.my.cnf",
    )
    try:
        parts = urlsplit(url)
        asked = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        port = parts.port or 3306
    except ValueError:
        raise wrong from None  # the message contains the address with the password
    database = unquote(parts.path.removeprefix("/"))
    tls = asked.pop("tls", [None])[-1]
    if not parts.hostname or not database or "/" in database or asked or tls == "" or parts.fragment:
        raise wrong
    found: dict[str, Any] = {"host": parts.hostname, "port": port, "database": database}
    found["tls"] = "" if tls == "on" else tls
    if parts.username:
        found["user"] = unquote(parts.username)
    if parts.password:
        found["password"] = unquote(parts.password)
    return found


def _context(certificates: str) -> ssl.SSLContext:
    """Return a TLS context that checks the server's certificate, by default with the system's own."""
    try:
        return ssl.create_default_context(cafile=certificates or None)
    except OSError as error:  # includes SSLError
        raise Invalid(
            "cannot read the certificate file",
            code="HF-E2374",
            where=certificates,
            found=str(error),
            expected="certificates in PEM format",
            hint="give the CA file of the server's certificate, or use those of the system with ?tls=on",
        ) from error


def _product(session: MySQLSession) -> str:
    return "MariaDB" if "MariaDB" in session.raw.get_server_info() else "MySQL"


def _require_known(session: MySQLSession, address: str) -> None:
    """Raise an error if the version of the server is not supported."""
    product, said = _product(session), session.raw.get_server_info()
    # Older versions of MariaDB report 5.5.5 first, for clients that do not accept higher versions.
    numbers = said.removeprefix("5.5.5-").partition("-")[0].split(".")
    version = tuple(int(number) for number in numbers if number.isdecimal())
    if version < OLDEST[product]:
        raise Unsupported(
            f"{product} {'.'.join(map(str, version))} is too old for a ledger",
            code="HF-E7114",
            where=address,
            expected=" or ".join(f"{name} {'.'.join(map(str, least))}" for name, least in OLDEST.items()),
            hint="use a newer server, or a ledger in PostgreSQL or SQLite",
        )


def _label(sink: str, token: int) -> str:
    """Return the name of the lock of a sink's owner; a digest, because names have at most 64 characters."""
    return f"holdfast:{sink_digest(sink)}:{token}"


def _make_tables(session: MySQLSession, options: str) -> None:
    (there,) = session.execute(
        """SELECT count(*) FROM information_schema.tables WHERE table_schema = database()
           AND table_name IN ('holdfast_fence', 'holdfast_batches')"""
    ).fetchone()
    if there == 2:
        return  # a user without the right to create tables may use existing ones
    session.execute(
        f"""CREATE TABLE IF NOT EXISTS holdfast_fence (
              sink VARCHAR(500) PRIMARY KEY, token BIGINT NOT NULL, claimed_ms BIGINT NOT NULL,
              owner LONGTEXT NOT NULL){options}"""
    )
    session.execute(
        f"""CREATE TABLE IF NOT EXISTS holdfast_batches (
              sink VARCHAR(500) NOT NULL, query_id VARCHAR(200) NOT NULL, batch_id BIGINT NOT NULL,
              token BIGINT NOT NULL, "rows" BIGINT, committed_ms BIGINT NOT NULL,
              PRIMARY KEY (sink, query_id, batch_id)){options}"""
    )


def _unique_keys(session: MySQLSession, schema: str, table: str) -> set[frozenset[str]]:
    """Return the sets of columns that have a unique index over their complete values."""
    rows = session.execute(
        """SELECT index_name, lower(column_name), sub_part FROM information_schema.statistics
           WHERE table_schema = coalesce(%s, database()) AND table_name = %s AND non_unique = 0""",
        (schema or None, table),
    ).fetchall()
    columns: dict[str, set[str]] = {}
    for index, column, part in rows:
        # An index on an expression or a prefix is ignored.
        columns.setdefault(index, set()).add("" if part is not None or column is None else column)
    return {frozenset(names) for names in columns.values()}
