"""A small disk of the run's own, which can be filled, and whose power can be cut. It needs root, and Linux."""

import asyncio
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from toril.errors import EngineUnusable

__all__ = ["Disk"]

_MEGABYTES = 256


class Disk:
    """ext4 on a loop device, in memory so that a copy of it is made within milliseconds."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
        self.folder = Path(tempfile.mkdtemp(prefix="toril-torture-", dir=shared if shared.is_dir() else None))
        self.place = self.folder / "disk"
        self._image = self.folder / "disk.img"
        self._cuts = 0

    async def start(self) -> None:
        with self._image.open("wb") as file:
            file.truncate(_MEGABYTES << 20)
        await _made("mkfs.ext4", "-q", "-F", str(self._image))
        await self._mount(self._image, self.place)

    async def _mount(self, image: Path, place: Path) -> None:
        place.mkdir()  # noqa: ASYNC240 - in memory
        await _made("mount", "-o", "loop", str(image), str(place))

    async def fill(self) -> None:
        """Leave no room on it."""
        await asyncio.get_running_loop().run_in_executor(None, self._fill)

    def _fill(self) -> None:
        with suppress(OSError), (self.place / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 20))

    def empty(self) -> None:
        (self.place / "filler").unlink(missing_ok=True)

    async def cut(self) -> Path:
        """An image of what a disk has that lost its power now. Whoever writes to it has to stand still."""
        self._cuts += 1
        copy = self.folder / f"cut-{self._cuts}.img"
        await _made("cp", "--sparse=always", str(self._image), str(copy))
        return copy

    async def opened(self, image: Path) -> Path:
        """Where the files of an image can be read."""
        place = image.with_suffix("")
        await self._mount(image, place)
        return place

    async def discard(self, place: Path) -> None:
        """A cut has been looked at."""
        await _made("umount", "--lazy", str(place))
        place.with_suffix(".img").unlink()

    async def stop(self) -> None:
        for place in [path for path in self.folder.iterdir() if path.is_mount()]:
            await _made("umount", "--lazy", str(place))
        shutil.rmtree(self.folder, ignore_errors=True)


async def _made(*command: str) -> None:
    if shutil.which(command[0]) is None or os.name != "posix":
        raise EngineUnusable(f"a disk of our own needs {command[0]}, which is not here")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, complaint = await process.communicate()
    except asyncio.CancelledError:
        await process.wait()  # or nobody would know of what it is about to mount
        raise
    if process.returncode:
        raise EngineUnusable(f"a disk of our own needs root: {command[0]} says {complaint.decode().strip()!r}")
