"""What an error of a database means: a bad row, a try later, or the end of the task.

Drivers number their errors, and put the same thing into different classes; this module reads the
numbers. What it returns says what the database said, never the statement with its values.
"""

from enum import Enum
from typing import Any, Final

from service.connect.data.errors import ConnectFault, DataFault, RetriableFault, TaskFault


class Meaning(Enum):
    BAD_ROW = "bad row"
    LATER = "later"
    """The connection is lost or the database busy: nothing of the transaction was done, unless it
    was being committed."""
    FATAL = "fatal"


_BAD_CLASSES: Final = ("22", "23", "44")
"""Of SQLSTATE: data exceptions, violated constraints, of views too."""
_LATER_CLASSES: Final = ("08", "40", "53", "55", "57", "58")
"""Connections, rollbacks, resources, locks, shutdowns, disks."""

_MYSQL_LATER: Final = frozenset(
    {1040, 1042, 1043, 1053, 1158, 1159, 1160, 1161, 1180, 1203, 1205, 1213, 1927, 2002, 2003}
    | {2006, 2013, 2014, 2055, 3024, 4031}
)
_MYSQL_BAD: Final = frozenset(
    {1048, 1062, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1441, 1451, 1452}
    | {1557, 1690, 3140, 3819, 4025}
)


def original(error: BaseException) -> BaseException:
    """Return the error of the driver below SQLAlchemy's."""
    found = getattr(error, "orig", None)
    if not isinstance(found, BaseException):
        return error
    # asyncpg's own is the cause of what SQLAlchemy makes of it.
    return found.__cause__ or found


def meaning_of(error: BaseException) -> Meaning:
    """Return what an exception of SQLAlchemy or of a driver means."""
    if getattr(error, "connection_invalidated", False):
        return Meaning.LATER
    cause = original(error)
    module = type(cause).__module__.partition(".")[0]
    match module:
        case "asyncpg":
            return _of_asyncpg(cause)
        case "pymysql":
            return _of_pymysql(cause)
        case "sqlite3":
            return _of_sqlite(cause)
    if isinstance(cause, OverflowError | ValueError | TypeError | AttributeError):
        return Meaning.BAD_ROW
    # A socket that was closed, a name that does not resolve.
    return Meaning.LATER if isinstance(cause, OSError | EOFError) else Meaning.FATAL


def _of_asyncpg(cause: BaseException) -> Meaning:
    state = str(getattr(cause, "sqlstate", None) or "")
    if state:
        if state == "57014":
            return Meaning.LATER
        if state.startswith(_BAD_CLASSES):
            return Meaning.BAD_ROW
        return Meaning.LATER if state.startswith(_LATER_CLASSES) else Meaning.FATAL
    # Its DataError says that a value does not fit a parameter; others concern the connection.
    return Meaning.BAD_ROW if isinstance(cause, ValueError) else Meaning.LATER


def _of_pymysql(cause: BaseException) -> Meaning:
    number: Any = cause.args[0] if cause.args else 0
    if number in _MYSQL_LATER or number == 0:
        return Meaning.LATER
    name = type(cause).__name__
    is_bad = number in _MYSQL_BAD or name in ("DataError", "IntegrityError")
    return Meaning.BAD_ROW if is_bad else Meaning.FATAL


def _of_sqlite(cause: BaseException) -> Meaning:
    name = type(cause).__name__
    code = str(getattr(cause, "sqlite_errorname", ""))
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")):
        return Meaning.LATER
    bad = ("IntegrityError", "DataError", "InterfaceError")
    is_bad = name in bad or code in ("SQLITE_MISMATCH", "SQLITE_TOOBIG")
    # A value that cannot be bound is a ProgrammingError, in some versions without a code.
    is_unbound = name == "ProgrammingError" and "binding" in str(cause)
    return Meaning.BAD_ROW if is_bad or is_unbound else Meaning.FATAL


def text_of_failure(error: BaseException) -> str:
    cause = original(error)
    return f"{type(cause).__name__}: {cause}"


def fault_of(error: BaseException, doing: str) -> ConnectFault:
    """Return the fault that a task raises for an error, with what it was doing."""
    text = f"{doing}: {text_of_failure(error)}"
    match meaning_of(error):
        case Meaning.BAD_ROW:
            return DataFault(text)
        case Meaning.LATER:
            return RetriableFault(text)
    return TaskFault(text)
