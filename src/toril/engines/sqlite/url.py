"""SQLite URLs: where the file is, and whether that is a safe place for a queue."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from toril.errors import EngineUnusable, InvalidOption, preview
from toril.store.engine import redacted

__all__ = ["OWNER_ONLY", "FileAddress", "check_file", "filesystem_of", "is_network", "named", "parse"]

# File locks or shared memory that other machines do not see would corrupt the file.
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "coda", "glusterfs", "lustre", "ncpfs", "vboxsf"}
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_SHOWN: Final = 200
OWNER_ONLY: Final = 0o600
_PERMISSIONS: Final = re.compile(r"0?6[046][046]")  # readable and writable by its owner, executable by nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAddress:
    """A parsed URL. `path` is None for a store in memory."""

    path: Path | None
    synchronous: Literal["full", "normal"] = "full"
    network: Literal["refuse", "allow"] = "refuse"
    permissions: int = OWNER_ONLY  # of a new file


def parse(url: str) -> FileAddress:
    """Parse `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory://`, with `?synchronous=normal`,
    `?network=allow` and `?permissions=0660`."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidOption(f"invalid URL {redacted(url)!r}: {error}") from None
    if parts.scheme == "memory":
        if url != "memory://":
            raise InvalidOption(f"memory:// takes no name, because it cannot be shared; got {redacted(url)!r}")
        return FileAddress(path=None)
    if parts.netloc or not parts.path.startswith("/"):
        raise InvalidOption(f"a SQLite URL needs three slashes, as in sqlite:///jobs.db; got {redacted(url)!r}")
    if any(lost in url for lost in "#\t\r\n"):
        raise InvalidOption(f"{redacted(url)!r} contains a character that must be escaped in a URL, such as %23 for #")
    path = unquote(parts.path[1:], errors="surrogateescape")
    if not path or path.endswith("/") or path.startswith((":memory:", "file:")) or "\0" in path:
        raise InvalidOption(
            f"{redacted(url)!r} does not name a file; use sqlite:///jobs.db, or memory:// for a store in memory"
        )
    # Absolute from here on, so that a program that changes its folder later still finds the same file.
    return _with_options(Path(path).absolute(), parts.query, url)


def _with_options(path: Path, query: str, url: str) -> FileAddress:
    synchronous: Literal["full", "normal"] = "full"
    network: Literal["refuse", "allow"] = "refuse"
    permissions = OWNER_ONLY
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name, value:
            case "synchronous", "full" | "normal":
                synchronous = value
            case "network", "refuse" | "allow":
                network = value
            case "permissions", _ if _PERMISSIONS.fullmatch(value):
                permissions = int(value, 8)
            case _:
                raise InvalidOption(
                    f"unknown option {preview(name + '=' + value)} in {redacted(url)!r}; the options are "
                    "synchronous=full|normal, network=refuse|allow and permissions=0600 (or 0640, 0660, …)"
                )
    return FileAddress(path=path, synchronous=synchronous, network=network, permissions=permissions)


def check_file(address: FileAddress) -> None:
    """Raise if the file cannot be in this place, or would not be safe there."""
    path = address.path
    if path is None:
        return
    try:
        real = _followed(path)
        _check_kind(path)
        _check_folder(real.parent)
    except (OSError, RuntimeError) as error:  # resolving a loop of links is a RuntimeError
        raise EngineUnusable(f"{named(path)} cannot be used: {error}") from error
    kind = filesystem_of(real.parent)
    if address.network == "refuse" and is_network(kind):
        raise EngineUnusable(
            f"{named(path)} is on {kind}, where SQLite's locks are not safe; use a local disk or Redis, "
            "or add ?network=allow if only one machine ever opens it"
        )


def is_network(kind: str) -> bool:
    """Whether other machines may share a file system of this kind."""
    return kind in _NETWORK or kind.startswith("fuse")


def _followed(path: Path) -> Path:
    """The real path of the file. A link is followed only to a file with the same owner as the link."""
    if not path.is_symlink():
        return path.absolute()
    real = path.resolve()
    target = real if real.exists() else real.parent
    if target.exists() and path.lstat().st_uid != target.stat().st_uid:
        raise EngineUnusable(
            f"{named(path)} is a symbolic link to a file with another owner, which Toril does not follow; use the "
            "file itself"
        )
    return real


def _check_kind(path: Path) -> None:
    if not path.exists():
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise EngineUnusable(f"{named(path)} is not a regular file")
    if not os.access(path, os.R_OK | os.W_OK):
        raise EngineUnusable(f"{named(path)} is not readable and writable by this user")


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise EngineUnusable(f"the directory {named(folder)} does not exist; create it, or choose another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EngineUnusable(
            f"the directory {named(folder)} is not writable by this user; SQLite creates its write-ahead log there"
        )


def named(path: Path | None) -> str:
    """The file's name for messages: control characters are escaped, and the end is kept, because it distinguishes
    files."""
    if path is None:
        return "the store in memory"
    text = repr(str(path)) if str(path).isprintable() else ascii(str(path))
    return text if len(text) <= _SHOWN else "'…" + text[-_SHOWN:]


def filesystem_of(folder: Path, mounts: str | None = None) -> str:
    """The kind of file system that contains this folder, as the kernel names it; empty if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return ""
    best, kind = "", ""
    here = str(folder.resolve())
    for line in mounts.split("\n"):
        fields, _, rest = line.partition(" - ")
        if not rest or fields.count(" ") < 4:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields.split(" ")[4])
        within = here == point or here.startswith(point.rstrip("/") + "/")
        if within and len(point) >= len(best):  # of two mounts in one place, the later one is visible
            best, kind = point, rest.split(" ")[0]
    return kind
