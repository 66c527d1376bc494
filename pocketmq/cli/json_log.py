"""Log lines as JSON, one object a line: `--log-format json`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

#: The attributes of every record; any others are fields added to the line (`extra`).
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

#: The fields of each line, which extra fields must not replace.
_OWN: Final = ("time", "level", "logger", "message", "exception")


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON: `time` (UTC), `level`, `logger`, `message`, `exception` if it has
    one, and the extra fields. A value that JSON cannot represent becomes a string."""

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
        # Not msgspec: file names may not be valid Unicode.
        return json.dumps(line, default=str)
