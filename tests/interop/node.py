"""BullMQ for Node, as the tests speak with it: a child process that takes one request a line (`node/driver.mjs`).

Every request has a deadline. The process serves many tests, each on its own event loop, so that it is read by a thread.
"""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from tests.servers import RedisServer

FOLDER = Path(__file__).parent / "node"
DEADLINE = 60.0
PACKAGES = {6: "bullmq", 5: "bullmq5"}  # by major

Script = Mapping[str, Sequence[Mapping[str, Any]]]


class NodeError(Exception):
    """Node answered with an error."""


class Driver:
    """One Node process, with BullMQ of one major."""

    def __init__(self, server: RedisServer, log: Path, major: int = 6) -> None:
        program = shutil.which("node")
        assert program is not None, "Node is missing: run  make node"
        assert (FOLDER / "node_modules" / PACKAGES[major]).exists(), "BullMQ for Node is missing: run  make node"
        self.major = major
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [program, str(FOLDER / "driver.mjs"), "127.0.0.1", str(server.port), PACKAGES[major]],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self._numbers = count(1)
        self._open: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    async def do(self, command: str, *, deadline: float = DEADLINE, **request: Any) -> Any:
        """The answer to one request."""
        number, answer = next(self._numbers), Future[Any]()
        self._open[number] = answer
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": command, **request}).encode() + b"\n")
        self._process.stdin.flush()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), deadline)
        except TimeoutError:
            raise AssertionError(f"Node did not answer {command} {request} in {deadline:g} s\n{self._tail()}") from None

    def kill(self) -> None:
        """As a crash would: nothing is closed, nothing given back."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            answer = self._open.pop(reply["id"])
            if answer.set_running_or_notify_cancel():  # nobody waits any longer for one that is cancelled
                self._settle(answer, reply)
        for answer in self._open.values():
            if answer.set_running_or_notify_cancel():
                answer.set_exception(NodeError(f"Node has ended\n{self._tail()}"))

    def _settle(self, answer: "Future[Any]", reply: Mapping[str, Any]) -> None:
        if "error" in reply:
            answer.set_exception(NodeError(reply["error"]))
        else:
            answer.set_result(reply["ok"])

    def _tail(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2000:]


class Node:
    """What a test does on Node's side."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.major = driver.major
        self._handles = count(1)

    def queue(self, name: str, **options: Any) -> "NodeQueue":
        """Options count where the queue is used for the first time; `traced=True` gives it a telemetry."""
        return NodeQueue(self.driver, name, options)

    async def worker(self, queue: str, script: Script | None = None, **options: Any) -> "NodeWorker":
        """A worker that plays `script`, steps by job name; without one, each job returns its data."""
        handle = f"w{next(self._handles)}"
        given: dict[str, Any] = {} if script is None else {"script": script}
        await self.driver.do("worker", handle=handle, queue=queue, options=options, **given)
        return NodeWorker(self.driver, handle)

    async def spans(self) -> Any:
        """The spans that have ended on Node's side since this was asked last."""
        return await self.driver.do("spans")

    async def flow(self, **flow: Any) -> Any:
        """The root of a tree of jobs: `name`, `queueName`, `data`, `opts`, `children`."""
        return await self.driver.do("flow", flow=flow)

    async def events(self, queue: str) -> "NodeEvents":
        """What Node's QueueEvents tells, from the beginning of the stream."""
        await self.driver.do("listen", queue=queue)
        return NodeEvents(self.driver, {"events": queue})

    async def redis(self, *command: str | float) -> Any:
        """One command, as it is."""
        return await self.driver.do("redis", args=[str(part) for part in command])

    async def board(
        self, queue: str, route: str, method: str = "get", *, others: Sequence[str] = (), **request: Any
    ) -> Any:
        """What Bull Board answers about this queue, while it knows others too."""
        answer = await self.driver.do("board", queues=[queue, *others], route=route, method=method, **request)
        assert answer["status"] < 300, answer
        return answer["body"]


class NodeEvents:
    """Things that happened on Node's side, in order."""

    def __init__(self, driver: Driver, of: Mapping[str, Any]) -> None:
        self._driver = driver
        self._of = of

    async def until(self, event: str, *, times: int = 1, deadline: float = DEADLINE, **match: Any) -> Any:
        """All of these, once there are so many."""
        wanted = {"event": event, **match}
        return await self._driver.do("until", **self._of, match=wanted, count=times, deadline=deadline)

    async def seen(self, **match: Any) -> Any:
        """All of these so far."""
        return await self._driver.do("seen", **self._of, match=match)

    async def names(self, job_id: str) -> list[str]:
        """What happened to one job, in order."""
        return [entry["event"] for entry in await self.seen(jobId=job_id)]


class NodeWorker(NodeEvents):
    """A worker of BullMQ, and what it says itself."""

    def __init__(self, driver: Driver, handle: str) -> None:
        super().__init__(driver, {"handle": handle})
        self._handle = handle

    async def release(self, job_id: str) -> None:
        """Let a job go on that its script holds."""
        await self._driver.do("release", handle=self._handle, jobId=job_id)

    async def close(self) -> None:
        await self._driver.do("closeWorker", handle=self._handle)

    async def call(self, method: str, *args: Any) -> Any:
        return await self._driver.do("workerCall", handle=self._handle, method=method, args=args)


class NodeQueue:
    """A queue of BullMQ: any method of it, and of its jobs."""

    def __init__(self, driver: Driver, name: str, options: Mapping[str, Any]) -> None:
        self._driver = driver
        self._options = options
        self.name = name

    async def call(self, method: str, *args: Any) -> Any:
        return await self._driver.do("queue", queue=self.name, method=method, args=args, options=self._options)

    async def add(self, name: str, data: Any = None, **options: Any) -> Any:
        """The job as Node sees it; options are BullMQ's, times in milliseconds."""
        return await self.call("add", name, {} if data is None else data, options)

    async def job(self, job_id: str) -> Any:
        return await self.call("getJob", job_id)

    async def state(self, job_id: str) -> str:
        return str(await self.call("getJobState", job_id))

    async def counts(self) -> dict[str, int]:
        found: dict[str, int] = await self.call("getJobCounts")
        return found

    async def of_job(self, job_id: str, method: str, *args: Any) -> Any:
        return await self._driver.do("job", queue=self.name, jobId=job_id, method=method, args=args)
