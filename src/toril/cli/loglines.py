"""Log lines that people can read, on stderr."""

import logging
import sys

from toril.cli.escaping import plain
from toril.logs import JobFields

__all__ = ["ReadableLines", "write_logs"]


def write_logs(level: str) -> None:
    """Write everything of this level and above, Toril's lines and the app's own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ReadableLines())
    handler.addFilter(JobFields())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class ReadableLines(logging.Formatter):
    """`12:00:00 INFO    message`. What an app logs within a job carries the job's queue and id."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:<7} {plain(record.getMessage())}"
        if record.name != "toril":
            facts = [f"{name}={vars(record)[name]}" for name in ("queue", "job_id") if name in vars(record)]
            line += plain(f" [{' '.join([record.name, *facts])}]")
        if record.exc_info:
            line += "\n" + "\n".join(plain(each) for each in self.formatException(record.exc_info).split("\n"))
        return line
