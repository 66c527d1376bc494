"""Log lines as JSON, one object a line: `--log-format json`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

#: What every record has; the others are fields that a line brings (`extra`).
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

#: The fields of each line, which no other may replace.
_OWN: Final = ("time", "level", "logger", "message", "exception")


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON: `time` (UTC), `level`, `logger`, `message`, `exception` if there is
    one, and the fields that the line brings. A value that JSON does not have becomes its text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        line |= {
            name: value
            for name, value in vars(record).items()
            if name not in _USUAL and name not in _OWN
        }
        # Not msgspec: names of files may hold what is not Unicode.
        return json.dumps(line, default=str)
