"""`Supervisor`: starts worker processes, and restarts those that die."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from toril.errors import TorilError
from toril.events import Events, tell_recovered
from toril.model import Lease, Recovered
from toril.policy.restarts import AT_ONCE, Restarts
from toril.runtime.clock import SYSTEM, Clock
from toril.runtime.hooks import worker_name
from toril.runtime.logs import log, outages, watch
from toril.runtime.signals import StopSignals
from toril.runtime.stop_requests import Urgency
from toril.store.connect import is_in_memory
from toril.store.engine import Store, connect, redacted
from toril.supervisor.child import BootFailure, ChildProcess, OomCounter, exit_text
from toril.supervisor.leases import FleetLeases
from toril.supervisor.silent import SILENT, sign_off, speak_for
from toril.worker.leftover import log_leftover
from toril.worker.messages import Message

__all__ = ["Listen", "Supervisor", "SupervisorOptions"]


@dataclass(frozen=True, slots=True)
class Listen:
    """Where HTTP is served. An address that somebody requested must be available; the default need not be."""

    host: str
    port: int
    asked_for: bool = False
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """How many children, how each is started, and when one has to be replaced. Times are seconds, sizes are bytes."""

    command: tuple[str, ...]  # starts a child; the descriptors are appended
    spare: tuple[str, ...] | None = None  # the same for a child that runs stalled jobs
    spares: int = 4  # how many of these there may be at a time
    title: str = "toril"
    processes: int = 1
    grace: float = 10.0
    burst: bool = False
    reload: bool = False
    hang_timeout: float = 300.0
    max_jobs: int | None = None
    max_rss: int | None = None
    unready_after: float = 10.0
    http: Listen | None = None
    env: dict[str, str] = field(default_factory=dict)


_LOOK: Final = 0.25
_PATIENCE: Final = 30.0  # seconds to return jobs to a store that does not answer
_OVERTIME: Final = 0.5  # seconds after the grace period after which processes are killed
_HURRY: Final = 1.2  # the same, after a second signal
_STARTING: Final = 1.0  # seconds that a process that has not booted may take to end
_SHOWN: Final = 5  # jobs to name in a log line
_LAST_WORDS: Final = 1.0
_SIGNED_OFF: Final = 1.0  # seconds at the end for reporting children that died
_STACKS: Final = 0.5  # seconds for a child to write where it is
_MUTE: Final = 3.0  # seconds that a child may live after closing its end of the connection


# What runs beside the children until they are gone, and is then cancelled.
Beside: TypeAlias = "Callable[[Supervisor], Coroutine[Any, Any, None]]"


class Supervisor:
    """One run of `toril run`. Its children may crash, hang or leak; it runs none of their code."""

    def __init__(self, options: SupervisorOptions, clock: Clock = SYSTEM, *, beside: Sequence[Beside] = ()) -> None:
        self.options = options
        self._beside = beside
        self.children: dict[int, ChildProcess] = {}
        self.restarts = 0
        self.failed: BootFailure | None = None
        self.hello: dict[str, Any] | None = None
        self.store: Store | None = None
        self.up = asyncio.Event()  # every child is ready
        self.draining = False
        self._clock = clock
        self._name = worker_name(clock).replace("worker-", "supervisor-", 1)
        self._keeper: FleetLeases | None = None
        self._opens = False  # the store is being opened, so the keeper will follow
        self._keeps = asyncio.Event()
        self._stopping = asyncio.Event()
        self._renewed = asyncio.Event()  # set when the application has changed: waiting restarts start at once
        self.sources: set[str] = set()
        self._oom = OomCounter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sign_offs: set[asyncio.Task[Any]] = set()
        self._spares: dict[int, asyncio.Task[None]] = {}
        self._clean = True
        self._spoken_for: set[int] = set()  # children whose loop is blocked

    async def run(self) -> int:
        """Run until a signal, or until every child has left for good. Returns 0 if drained, 1 if not entirely, or the
        code of a failed boot."""
        signals = StopSignals(self.options.grace, self.stop, self._kill_all)
        with signals.watching(), self._other_signals(signals):
            rounds = asyncio.gather(self._look_after(), *(beside(self) for beside in self._beside))
            try:
                await asyncio.gather(
                    *(self._run_slot(number, self.options.command) for number in range(self.options.processes))
                )
                if self.options.burst and self.store is not None and self.hello is not None:
                    await log_leftover(self.store, self.hello["queues"], self._clock)
            finally:
                await self._end_spares()
                rounds.cancel()
                await asyncio.gather(rounds, return_exceptions=True)
                await self._close()
        if self.failed is not None:
            return self.failed.code
        return 0 if self._clean else 1

    def stop(self, urgency: Urgency = Urgency.DRAIN) -> None:
        """Make the children drain, or release their jobs at once."""
        self.draining = True
        self._stopping.set()
        for child in self.children.values():
            child.terminate(urgency)
        if urgency is Urgency.DRAIN:
            log.info("stopping: running jobs have %g s to finish; a second signal skips the wait", self.options.grace)
            self._clock.later(_STARTING, self._kill_starting)
        self._clock.later(_HURRY if urgency >= Urgency.HURRY else self.options.grace + _OVERTIME, self._overtime)

    def replace(self) -> None:
        """Make each child drain, and start another in its place."""
        self._renewed.set()
        self._renewed = asyncio.Event()
        for child in self.children.values():
            if not child.draining:
                child.terminate()

    # one slot, with one child after another

    async def _run_slot(self, number: int, command: Sequence[str]) -> None:
        restarts = Restarts(self._clock.random)
        while not self._stopping.is_set():
            child = ChildProcess(command, self.options.env)
            self.children[number] = child
            began = self._clock.monotonic()
            listening = asyncio.create_task(self._listen(child))
            code = await child.died
            asked = self._stopping.is_set()
            if not child.table.ticked:  # it has no jobs, but may have sent a reason
                await asyncio.wait([listening], timeout=_LAST_WORDS)
            await self._end_child(number, child, code)
            await asyncio.wait([listening], timeout=_LAST_WORDS)
            over, ended = self._is_over(child, code, asked=asked), child.table.ended
            child.close()
            if over:
                return
            self.restarts += 1
            lived = self._clock.monotonic() - began
            await self._pause(restarts.pause(lived=lived, ended=ended, requested=child.draining))

    async def _listen(self, child: ChildProcess) -> None:
        """Handle a child's messages until it ends. A child that lives but is disconnected cannot be looked after, so it
        ends the run."""
        why = "it closed the connection"
        try:
            async for message in child.listen():
                self._received(child, message)
        except Exception as error:
            if not child.died.done():
                log.exception("listening to worker process %s failed", child.pid)
            why = f"{type(error).__name__}: {error}"
        await asyncio.wait([child.died], timeout=_MUTE)
        if not child.died.done() and not (self._stopping.is_set() or child.draining or child.stopping):
            reason = f"the supervisor lost contact with worker process {child.pid}, which is still running: {why}"
            log.error("%s; stopping", reason)
            self.fail(BootFailure(1, reason))

    def _received(self, child: ChildProcess, message: Message) -> None:
        match message:
            case {"hello": hello}:
                child.hello = hello
                self._greet(hello)
            case {"sources": paths}:
                self.sources.update(paths)
            case {"ready": _}:
                child.ready = True
                if not self.up.is_set() and sum(each.ready for each in self.regular) == self.options.processes:
                    self.up.set()
                    noun = "worker process" if self.options.processes == 1 else "worker processes"
                    log.info("ready: %s %s", self.options.processes, noun)
            case {"failed": words}:
                child.failed = BootFailure(*words)
            case {"pollers": statuses}:
                child.pollers = statuses
            case {"quiet": _}:
                child.quiet = True
            case {"draining": _}:
                child.stopping = True
            case {"leaves": _}:
                child.leaves = child.draining = True
            case {"trouble": text}:
                outages.over() if text is None else outages.tell(text)
            case {"suspects": count}:
                self._suspects_wait(count)
            case {"ask": _} if self._keeper is not None:
                self._keeper.ask()

    def _is_over(self, child: ChildProcess, code: int, *, asked: bool) -> bool:
        """Whether the slot stays empty. During the boot, a child that fails ends the whole run, unless a job crashed
        it. A child that died before anyone `asked` the run to stop does not make that stop unclean."""
        unfit = child.failed is not None or (code > 0 and not child.table.ticked)
        if unfit and not self.up.is_set() and not self._stopping.is_set():
            self.fail(child.failed or BootFailure(1, f"a worker process could not start: {exit_text(code)}"))
            return True
        if child.failed is not None and not self._stopping.is_set():
            log.error("a worker process could not start: %s", child.failed.text)
        expected = self._stopping.is_set() or child.leaves or (self.options.burst and code in (0, 1))
        in_order = code in (0, -signal.SIGTERM) or (child.forced and not child.begun)
        if expected and (asked or not self._stopping.is_set()) and not in_order:
            self._clean = False
        return expected

    def fail(self, failed: BootFailure) -> None:
        """End the run with this as the reason: it cannot continue, or has not even begun."""
        self.failed = failed
        if not self._stopping.is_set():
            self.stop()

    async def _end_child(self, number: int, child: ChildProcess, code: int) -> None:
        """Recover or release its jobs before anything else."""
        del self.children[number]
        leases = [entry.lease for entry in child.held()]
        cause = child.killed or exit_text(code, out_of_memory=code == -signal.SIGKILL and self._oom.grew())
        stopped = (child.draining or child.stopping) and (code >= 0 or child.forced)
        if not stopped and code not in (0, -signal.SIGTERM) and child.failed is None:
            what = cause.removeprefix("its process ")
            log.error("worker process %s %s; jobs returned to their queues: %s", child.pid, what, len(leases))
        if leases and (keeper := await self._keeper_when_open()) is not None:
            try:
                await self._return(keeper, leases, None if stopped else cause)
            except Exception:  # whatever the error is, the other processes need a supervisor
                log.exception("jobs could not be returned to their queues; they will be when their leases run out")
        if code < 0 or not stopped:
            signing = self._follow(self._sign_off(child))
            self._sign_offs.add(signing)
            signing.add_done_callback(self._sign_offs.discard)

    async def _sign_off(self, child: ChildProcess) -> None:
        """Report the death of a child that was killed, because it cannot do so itself."""
        if await self._keeper_when_open() is not None and self.store is not None:
            await sign_off(child, self.store)

    async def _keeper_when_open(self) -> FleetLeases | None:
        """None if the child has its store to itself. The first jobs can crash a process before the supervisor has
        opened the store."""
        if self._keeper is None and self._opens:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._keeps.wait()
        return self._keeper

    async def _return(self, keeper: FleetLeases, leases: list[Lease], cause: str | None) -> None:
        """Release the jobs of a process that has stopped, or recover those of one that died, with the cause."""
        if cause is None:
            await keeper.release_all(leases, _PATIENCE)
            return
        stalled = await keeper.recover(leases, cause, _PATIENCE)
        if waiting := sum(len(found.returned) for _, found in stalled):
            self._suspects_wait(waiting)
        for queue, found in stalled:
            self._tell_stalled(queue, found)

    @property
    def regular(self) -> list[ChildProcess]:
        """The children that are not spare."""
        return [child for number, child in self.children.items() if number < self.options.processes]

    def _suspects_wait(self, count: int) -> None:
        """This many stalled jobs wait, each for a process to itself. Tell idle processes at once; for the others, start
        spare processes, as many as allowed."""
        first = self.options.processes
        idle = [
            child
            for number, child in self.children.items()
            if child.ready
            and not (child.draining or child.stopping or child.quiet)
            and not child.held()
            and (number >= first or first > 1)
        ]
        for child in idle:
            child.say(look=True)
        in_memory = self._keeper is None
        if in_memory or self.options.spare is None or self._stopping.is_set():
            return
        taken = [number for number, slot in self._spares.items() if not slot.done()]
        coming = sum(number not in self.children or not self.children[number].ready for number in taken)
        free = [number for number in range(first, first + self.options.spares) if number not in taken]
        for number in free[: max(0, count - len(idle) - coming)]:
            self._spares[number] = asyncio.create_task(self._run_slot(number, self.options.spare))

    async def _end_spares(self) -> None:
        """End the spare processes, last of all."""
        if self._spares:
            self._stopping.set()
            for number in self._spares:
                spare = self.children.get(number)
                if spare is not None and not spare.draining:
                    spare.terminate()
            await asyncio.wait(self._spares.values())

    def _tell_stalled(self, queue: str, found: Recovered) -> None:
        """Report it through a child, which has the app's listeners, or without one in our own log."""
        teller = next((child for child in self.children.values() if child.ready), None)
        if teller is not None:
            teller.say(stalled=[queue, found.returned, found.failed, found.cancelled])
            return
        events = Events()
        watch(events)
        tell_recovered(events, queue, found, self._name)

    async def _pause(self, pause: float) -> None:
        if pause > AT_ONCE:
            log.warning("restarting a worker process in %.1f s", pause)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stopping, self._renewed)]
        await asyncio.wait(waits, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    # other tasks

    def _greet(self, hello: dict[str, Any]) -> None:
        """The first child has told which store it uses. A store in memory belongs to that child, which renews its own
        leases."""
        if self.hello is None:
            self.hello = hello
            queues = ", ".join(f"{name} ({slots})" for name, slots in hello["queues"].items())
            log.info("%s on %s: %s", self.options.title, redacted(hello["url"]), queues)
            if not is_in_memory(hello["url"]):
                store = connect(hello["url"], prefix=hello["prefix"], clock=self._clock, **hello["options"])
                self._opens = True
                self._follow(self._keep_leases(store)).add_done_callback(self._keeping_ended)

    def _keeping_ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the supervisor cannot renew leases; stopping", exc_info=error)
            self.fail(BootFailure(1, f"the supervisor cannot renew leases: {type(error).__name__}: {error}"))

    async def _keep_leases(self, store: Store) -> None:
        while self.store is None:
            try:
                await store.open()
                self.store = store
            except TorilError:  # the child has the same problem, and reports it
                await self._clock.sleep(_LOOK)
        self._keeper = FleetLeases(store, self._clock, self._name, lambda: list(self.children.values()))
        self._keeps.set()
        await self._keeper.keep()

    async def _look_after(self) -> None:
        while True:
            await self._clock.sleep(_LOOK)
            _reap_strangers({child.pid for child in self.children.values()})
            for child in list(self.children.values()):
                self._look_at(child)

    def _look_at(self, child: ChildProcess) -> None:
        ticked, options = child.table.ticked, self.options
        if child.draining or child.killed or not ticked:
            return
        silent = self._clock.monotonic() - ticked
        if silent > SILENT and child.pid not in self._spoken_for and self.store is not None:
            self._spoken_for.add(child.pid)
            speaking = self._follow(speak_for(child, self.store, self._clock))
            speaking.add_done_callback(lambda _: self._spoken_for.discard(child.pid))
        if silent > options.hang_timeout:
            child.draining = True  # so that it is handled only once
            self._follow(self._end_hung(child, silent))
        elif options.max_jobs is not None and child.table.ended >= options.max_jobs:
            log.info("replacing worker process %s: it has run %s jobs", child.pid, child.table.ended)
            child.terminate()
        elif options.max_rss is not None and (child.rss() or 0) > options.max_rss:
            log.info("replacing worker process %s: it has grown to %s bytes", child.pid, child.rss())
            child.terminate()

    async def _end_hung(self, child: ChildProcess, silent: float) -> None:
        child.ask_for_stacks()
        await self._clock.sleep(_STACKS)
        log.error("worker process %s is hung: its event loop has been blocked for %.1f s", child.pid, silent)
        _log_stacks(child)
        child.draining = False
        child.kill(f"its process hung: the event loop was blocked for {silent:.1f} s")

    def _follow(self, coroutine: Any) -> "asyncio.Task[Any]":
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close(self) -> None:
        if self._sign_offs:
            await asyncio.wait(self._sign_offs, timeout=_SIGNED_OFF)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.store is not None:
            await self.store.close()

    def _kill_starting(self) -> None:
        """A process that has not booted has nothing to settle, and may not get the request before Python has started,
        which takes long on a busy machine."""
        for child in self.children.values():
            if not child.begun:
                child.force()

    def _overtime(self) -> None:
        """The time to stop is over: log which processes have not ended, and what they are running."""
        for child in self.children.values():
            held = [f"{entry.lease.queue}/{entry.lease.id}"[:100] for entry in child.held()]
            jobs = ", ".join([*held[:_SHOWN], *(["…"] if len(held) > _SHOWN else [])]) or "nothing"
            log.error(
                "worker process %s did not stop in time and is killed; jobs returned to their queues: %s",
                child.pid,
                jobs,
            )
        self._kill_all()

    def _kill_all(self) -> None:
        """Called by `StopSignals` too, when any thread may hold the locks of logging."""
        for child in list(self.children.values()):
            self._clean = self._clean and not child.begun
            child.force()

    @contextlib.contextmanager
    def _other_signals(self, signals: StopSignals) -> Iterator[None]:
        """A closed terminal is no reason to stop; QUIT releases jobs at once; USR1 logs the stacks of the children."""

        loop = asyncio.get_running_loop()
        numbers: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGHUP: lambda: None,
            signal.SIGQUIT: partial(signals.request, Urgency.HURRY),
            signal.SIGUSR1: lambda: self._follow(self._show_stacks()),
        }
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
            for number, act in numbers.items():
                loop.add_signal_handler(number, act)
        try:
            yield
        finally:
            for number in numbers:
                with contextlib.suppress(ValueError, RuntimeError):
                    loop.remove_signal_handler(number)

    async def _show_stacks(self) -> None:
        for child in self.children.values():
            child.ask_for_stacks()
        await self._clock.sleep(_STACKS)
        for child in self.children.values():
            log.error("worker process %s is running %s jobs", child.pid, child.table.running)
            _log_stacks(child)


def _log_stacks(child: ChildProcess) -> None:
    for line in child.stacks().splitlines():
        log.error("%s", line)


def _reap_strangers(own: set[int]) -> None:
    """As process 1 we inherit orphans, which nobody else waits for."""
    if os.getpid() != 1:
        return
    peek = partial(os.waitid, os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    with contextlib.suppress(ChildProcessError):
        while (found := peek()) is not None and found.si_pid not in own:
            os.waitpid(found.si_pid, 0)
