"""The page of workers: which are alive, how busy they are, and what has run longest."""

from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field

from toril.web.api.workers import Longest, list_running, list_workers
from toril.web.pages.drawing import slots
from toril.web.pages.page import PageSpec, View
from toril.web.routing import Request

__all__ = ["WORKERS"]

_SLOW: Final = 100  # ms that a loop may be late
_SILENT: Final = 20_000  # ms without a heartbeat, which is sent every ten seconds


class WorkersView(View):
    """A text to find in name, host, queues or version; the jobs of one worker."""

    q: Annotated[str, Field(max_length=200)] = ""
    worker: Annotated[str, Field(max_length=128)] = ""


async def workers(asking: Request) -> dict[str, Any]:
    view: WorkersView = asking.query
    everyone = (await list_workers(asking))["items"]
    now = (await asking.app.store.health()).now
    newest = max(everyone, key=lambda each: each["started_at"], default={"version": ""})["version"]
    rows = [_row(each, now, newest) for each in everyone if _fits(each, view.q)]
    rows.sort(key=lambda row: (row["host"], row["pid"], row["worker"]))
    running = await list_running(replace(asking, query=Longest(worker=view.worker or None)))
    return {
        "title": "Workers", "view": view, "rows": rows, "total": len(everyone), "running": running,
        "hosts": len({each["host"] for each in everyone}), "slots": sum(each["slots"] for each in everyone),
        "busy": sum(each["running"] for each in everyone),
        "told": sum(bool(each["orders"]) for each in everyone),
    }  # fmt: skip


def _fits(worker: dict[str, Any], text: str) -> bool:
    words = " ".join([worker["worker"], worker["host"], str(worker["pid"]), worker["version"], *worker["queues"]])
    return all(word in words.casefold() for word in text.casefold().split())


def _row(worker: dict[str, Any], now: int, newest: str) -> dict[str, Any]:
    look, word = _state(worker, now)
    return worker | {
        "look": look,
        "word": word,
        "cells": slots(worker["running"], worker["slots"]),
        "slow": worker["loop_lag_ms"] > _SLOW,
        "old": worker["version"] != newest,
        "acts": "ending" if "stop" in worker["orders"] else "muted" if "quiet" in worker["orders"] else "worker",
    }


def _state(worker: dict[str, Any], now: int) -> tuple[dict[str, str], str]:
    if worker["silent_ms"]:
        return {"cls": "crit", "icon": "crit"}, "Hung"
    if now - worker["seen_at"] > _SILENT:
        return {"cls": "crit", "icon": "crit"}, "Silent"
    if "stop" in worker["orders"]:
        return {"cls": "delayed", "icon": "delayed"}, "Draining"
    if "quiet" in worker["orders"]:
        return {"cls": "paused", "icon": "paused"}, "Quiet"
    if worker["loop_lag_ms"] > _SLOW:
        return {"cls": "warn", "icon": "warn"}, "Slow loop"
    return {"cls": "done", "icon": "done"}, "Running"


WORKERS: Final = (PageSpec(path="/workers", template="workers.html", show=workers, query=WorkersView, nav="workers"),)
