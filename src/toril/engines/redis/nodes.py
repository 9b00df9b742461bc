"""Jobs of a flow as scripts take them, and children as readers see them."""

import json
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.options import dump_options, parsed
from toril.model import Child, FlowNode, JobRef, OnFailure

__all__ = ["FLAGS", "dump_names", "dump_nodes", "dump_refs", "link_of", "load_names", "ref_of"]

# BullMQ's words. They count where they stand in the child's `parent`; in its options they are shown.
FLAGS: Final = {
    OnFailure.FAIL: "fpof", OnFailure.CONTINUE: "cpof", OnFailure.IGNORE: "idof", OnFailure.REMOVE: "rdof",
    OnFailure.WAIT: "",
}  # fmt: skip


def dump_nodes(nodes: Sequence[FlowNode]) -> str:
    return json.dumps([_spelled_out(node) for node in nodes], ensure_ascii=False)


def dump_refs(refs: Sequence[JobRef]) -> str:
    return json.dumps([(ref.queue, ref.id) for ref in refs], ensure_ascii=False)


def dump_names(children: Sequence[Child]) -> str | None:
    """The names of children in the order of adding, as a parent's field has them; None if none is known."""
    named = sorted((child for child in children if child.name is not None), key=lambda child: child.number or 0)
    return ",".join(json.dumps([str(child.ref), child.name], separators=(",", ":")) for child in named) or None


def load_names(text: str | None) -> list[tuple[JobRef, str]]:
    """The same, as readers want it; what is not of this form is left out."""
    found = parsed(f"[{text}]", None) if text else None
    return [(JobRef(*each[0].split(":", 1)), each[1]) for each in found or () if _is_named(each)]


def _is_named(each: object) -> bool:
    return isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each) and ":" in each[0]


def _spelled_out(node: FlowNode) -> list[Any]:
    job, parent = node.job, node.parent
    return [
        node.queue, job.id, job.name, job.data, dump_options(job), str(job.delay),
        "" if job.due is None else str(job.due), str(job.priority), "1" if job.lifo else "",
        "" if job.expires is None else str(job.expires), job.metadata or "", "1" if node.waits else "",
        *(("", "", "") if parent is None else (parent.queue, parent.id, FLAGS[node.on_failure])),
        job.group or "",
    ]  # fmt: skip


def ref_of(prefix: str, key: str) -> JobRef:
    """The job of a key; one of another prefix keeps it as part of its queue."""
    own = f"{prefix}:"
    if key.startswith(own):
        queue, _, identity = key[len(own) :].partition(":")
    else:
        queue, _, identity = key.rpartition(":")
    return JobRef(queue, identity)


def link_of(text: str | None) -> tuple[JobRef | None, OnFailure]:
    """Whose child a job is, from its field, and what its failure does there."""
    link = parsed(text, None)
    try:
        parent = JobRef(str(link["queueKey"]).rpartition(":")[2], str(link["id"]))
    except (ValueError, TypeError, KeyError):
        return None, OnFailure.WAIT
    return parent, next((policy for policy, flag in FLAGS.items() if flag and link.get(flag)), OnFailure.WAIT)
