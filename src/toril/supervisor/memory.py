"""Whether the kernel has killed something of ours for want of memory."""

from pathlib import Path

__all__ = ["OomCounter"]


class OomCounter:
    """The counter of the control group that this process is in, where there is one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _events_file()
        self._seen = self._read()

    def grew(self) -> bool:
        """Whether something was killed since the last look."""
        before, self._seen = self._seen, self._read()
        return self._seen > before

    def _read(self) -> int:
        try:
            lines = self._file.read_text("ascii").split("\n") if self._file is not None else []
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _events_file() -> Path | None:
    try:
        groups = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return None
    own = next((line.partition("::")[2] for line in groups if line.startswith("0::")), None)
    return None if own is None else Path("/sys/fs/cgroup") / own.lstrip("/") / "memory.events"
