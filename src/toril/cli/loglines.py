"""Log lines that people can read, on stderr."""

import logging
import sys

from toril.cli.escaping import plain
from toril.runtime.logs import JobFields

__all__ = ["ReadableLines", "write_logs"]


def write_logs(level: str) -> None:
    """Write everything of this level and above, Toril's lines and the app's own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ReadableLines())
    handler.addFilter(JobFields())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class ReadableLines(logging.Formatter):
    """`12:00:00 INFO    message`. What an app logs within a job carries the job's queue and id; a job that has failed
    comes with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:<7} {plain(record.getMessage())}"
        if record.name != "toril":
            facts = [f"{name}={vars(record)[name]}" for name in ("queue", "job_id") if name in vars(record)]
            line += plain(f" [{' '.join([record.name, *facts])}]")
        trace = self.formatException(record.exc_info) if record.exc_info else _trace_of_a_job(record)
        return "\n".join([line, *map(plain, trace.rstrip().split("\n"))]) if trace else line


def _trace_of_a_job(record: logging.LogRecord) -> str:
    """Where a job has failed: its record may be all that is kept of it."""
    failed = record.name == "toril" and "kind" in vars(record)
    return str(vars(record).get("detail", "")) if failed else ""
