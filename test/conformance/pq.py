"""pq: the little of libpq the runner needs: one statement at a time, text values, SQLSTATEs, a time limit on everything."""
import ctypes
import ctypes.util
import select
import time

_lib = ctypes.CDLL(ctypes.util.find_library("pq") or "libpq.so.5")
_conn, _text, _int = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
for _name, _result, *_arguments in (
        ("PQconnectdb", _conn, _text), ("PQstatus", _int, _conn), ("PQfinish", None, _conn),
        ("PQerrorMessage", _text, _conn), ("PQbackendPID", _int, _conn), ("PQsocket", _int, _conn),
        ("PQsendQuery", _int, _conn, _text), ("PQconsumeInput", _int, _conn), ("PQisBusy", _int, _conn),
        ("PQgetResult", _conn, _conn), ("PQclear", None, _conn), ("PQresultStatus", _int, _conn),
        ("PQresultErrorField", _text, _conn, _int), ("PQntuples", _int, _conn), ("PQnfields", _int, _conn),
        ("PQgetvalue", _text, _conn, _int, _int), ("PQgetisnull", _int, _conn, _int, _int)):
    _function = getattr(_lib, _name)
    _function.restype, _function.argtypes = _result, _arguments
_processor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_quiet = _processor(lambda _, message: None)
_lib.PQsetNoticeProcessor.argtypes = [_conn, _processor, ctypes.c_void_p]

CONNECTION_OK, TUPLES_OK, FATAL_ERROR = 0, 2, 7


class SqlError(Exception):
    def __init__(self, state, message, detail):
        super().__init__("%s: %s%s" % (state, message, " (%s)" % detail if detail else ""))
        self.state, self.message, self.detail = state, message, detail


class ConnectionLost(Exception):
    pass


class TimeLimit(Exception):
    pass


class Session:
    """A connection. run() waits; send() starts a statement, finish() collects it."""

    def __init__(self, dbname, deadline):
        self.deadline = deadline
        info = "dbname='%s' client_encoding=UTF8 connect_timeout=10 fallback_application_name=conformance " \
               "options='-c client_min_messages=warning -c timezone=UTC -c datestyle=ISO,YMD -c intervalstyle=postgres'"
        self.conn = _lib.PQconnectdb((info % dbname).encode())
        if _lib.PQstatus(self.conn) != CONNECTION_OK:
            message = _lib.PQerrorMessage(self.conn).decode()
            self.close()
            raise ConnectionLost(message)
        _lib.PQsetNoticeProcessor(self.conn, _quiet, None)
        self.pid = _lib.PQbackendPID(self.conn)

    def send(self, sql):
        if not _lib.PQsendQuery(self.conn, sql.encode()):
            raise ConnectionLost(_lib.PQerrorMessage(self.conn).decode())

    def ready(self, wait):
        """Has the statement come to an end? Waits that many seconds for it."""
        end = time.monotonic() + wait
        while True:
            if not _lib.PQconsumeInput(self.conn):
                raise ConnectionLost(_lib.PQerrorMessage(self.conn).decode())
            if not _lib.PQisBusy(self.conn):
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            select.select([_lib.PQsocket(self.conn)], [], [], left)

    def finish(self):
        """Rows of the last statement, values as text or None."""
        rows, error = [], None
        while True:
            if not self.ready(self.deadline - time.monotonic()):
                raise TimeLimit("time limit reached")
            result = _lib.PQgetResult(self.conn)
            if not result:
                break
            if _lib.PQresultStatus(result) == FATAL_ERROR:
                state, message, detail = ((_lib.PQresultErrorField(result, ord(c)) or b"").decode() for c in "CMD")
                error = error or SqlError(state or "08006", message or _lib.PQerrorMessage(self.conn).decode(), detail)
            else:
                rows = [[None if _lib.PQgetisnull(result, i, j) else _lib.PQgetvalue(result, i, j).decode()
                         for j in range(_lib.PQnfields(result))] for i in range(_lib.PQntuples(result))]
            _lib.PQclear(result)
        if error:
            raise error
        return rows

    def run(self, sql):
        self.send(sql)
        return self.finish()

    def close(self):
        if self.conn:
            _lib.PQfinish(self.conn)
            self.conn = None


def literal(value):
    return "'" + value.replace("'", "''") + "'" if "\\" not in value else \
        " E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
