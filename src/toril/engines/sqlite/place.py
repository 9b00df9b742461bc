"""Where the file lies, and whether a queue may be trusted to that place."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from toril.engine import redacted
from toril.errors import EngineUnusable, InvalidOption, shown

__all__ = ["Address", "check_file", "filesystem_of", "parse"]

# A file lock that is not seen by every machine, or a shared-memory map that is not shared, corrupts the file.
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed URL. `path` is None for a store in memory."""

    path: Path | None
    synchronous: Literal["full", "normal"] = "full"
    network: Literal["refuse", "allow"] = "refuse"


def parse(url: str) -> Address:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, `memory://`; with `?synchronous=normal`, `?network=allow`."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        if url != "memory://":
            raise InvalidOption(f"memory:// takes no name, since it cannot be shared, and {redacted(url)!r} has one")
        return Address(path=None)
    if parts.netloc:
        raise InvalidOption(f"a file's URL has three slashes, sqlite:///jobs.db, and {redacted(url)!r} has two")
    path = unquote(parts.path[1:])
    if not path or path.endswith("/") or path.startswith((":memory:", "file:")) or "\0" in path:
        raise InvalidOption(f"{redacted(url)!r} names no file; write sqlite:///jobs.db, or memory:// for none at all")
    return _with_options(Path(path), parts.query, url)


def _with_options(path: Path, query: str, url: str) -> Address:
    synchronous: Literal["full", "normal"] = "full"
    network: Literal["refuse", "allow"] = "refuse"
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name, value:
            case "synchronous", "full" | "normal":
                synchronous = value
            case "network", "refuse" | "allow":
                network = value
            case _:
                raise InvalidOption(
                    f"{redacted(url)!r} has {shown(name + '=' + value)}; "
                    "known are synchronous=full|normal and network=refuse|allow"
                )
    return Address(path=path, synchronous=synchronous, network=network)


def check_file(address: Address) -> None:
    """Refuse a place where the file cannot be, or would not be safe."""
    path = address.path
    if path is None:
        return
    parent = path.absolute().parent
    if not parent.is_dir():
        raise EngineUnusable(f"the folder {shown(str(parent))} does not exist; make it, or choose another")
    if path.is_symlink() and path.lstat().st_uid != _owner(path):
        raise EngineUnusable(f"{shown(str(path))} is a link to a file of another owner and is not followed")
    if path.exists():
        if not stat.S_ISREG(path.stat().st_mode):
            raise EngineUnusable(f"{shown(str(path))} is not a regular file")
        if not os.access(path, os.R_OK | os.W_OK):
            raise EngineUnusable(f"{shown(str(path))} cannot be read and written by this user")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise EngineUnusable(
            f"the folder {shown(str(parent))} cannot be written by this user; the log lies beside the file"
        )
    kind = filesystem_of(parent)
    if address.network == "refuse" and (kind in _NETWORK or kind.startswith("fuse")):
        raise EngineUnusable(
            f"{shown(str(path))} lies on {kind}, where SQLite's locks are not safe; use a local disk, or Redis, "
            "or add ?network=allow if only one machine ever opens it"
        )


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return path.resolve().parent.stat().st_uid


def filesystem_of(folder: Path, mounts: str | None = None) -> str:
    """The kind of filesystem that holds this folder, as the kernel names it; empty where that is not known."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
        except OSError:
            return ""
    best, kind = "", ""
    here = str(folder.resolve())
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4].encode().decode("unicode_escape")
        within = here == point or here.startswith(point.rstrip("/") + "/")
        if within and len(point) >= len(best):
            best, kind = point, rest.split()[0]
    return kind
