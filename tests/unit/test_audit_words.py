"""What an entry of the audit log says, as a sentence."""

import json
from typing import Any

import pytest

from toril.model import AuditEntry
from toril.web.api import ENDPOINTS
from toril.web.audit_text import ACTIONS, in_words, sentence
from toril.web.templates import Name


def entry(action: str, target: str = "", body: Any = None, **more: Any) -> AuditEntry:
    plain = {"who": "ada", "address": "::1", "detail": "" if body is None else json.dumps(body), "ended": "done"}
    return AuditEntry(action=action, target=target, **plain | more)


def test_everything_that_can_be_done_over_http_has_words() -> None:
    assert {each.action for each in ENDPOINTS if each.method != "GET"} == set(ACTIONS)


@pytest.mark.parametrize(
    ("noted", "text"),
    [
        (entry("pause queue", "email"), "Paused queue email"),
        (entry("replay letters", body={"ids": ["email/7"]}, done=1, refused=0), "Replayed dead letter email/7"),
        (entry("replay letters", body={"where": {"queue": "hooks", "error": "429"}}, done=1284, refused=3),
         "Replayed 1,284 dead letters in hooks, error 429; 3 refused"),
        (entry("discard letters", body={"where": {}}, done=2, refused=0), "Discarded 2 dead letters"),
        (entry("discard letters", body={"ids": ["a", "b", "c", "d", "e"]}, done=5),
         "Discarded 5 dead letters: a, b, c and 2 more"),
        (entry("retry jobs", "email", {"state": "failed", "q": "bounce"}, done=40, refused=0),
         "Retried 40 failed jobs in email, text bounce"),
        (entry("cancel jobs", "email", {"state": "waiting_children", "key": "org=7"}, done=1, refused=0),
         "Cancelled 1 waiting job in email, data org=7"),
        (entry("remove jobs", "email", {"ids": ["9"]}, done=1, refused=0), "Removed job 9 in email"),
        (entry("job stack", "email/7"), "Asked for the stack of job 7 in email"),
        (entry("cancel job", "email/a/b", {"reason": "too late"}), "Cancelled job a/b in email: too late"),
        (entry("drain queue", "email", {}, done=12, refused=0), "Removed 12 waiting jobs in email"),
        (entry("clean queue", "email", {"state": "completed"}, done=3, refused=0), "Removed 3 completed jobs in email"),
        (entry("obliterate queue", "email", {}, done=3, refused=0), "Removed queue email with 3 jobs"),
        (entry("set limits", "email", {"concurrency": 5, "rate": {"max": 10, "per": 1.0}}),
         "Set the limits of queue email to concurrency 5, rate 10 per 1 s"),
        (entry("set limits", "email", {"concurrency": None, "rate": None}),
         "Set the limits of queue email to no concurrency limit, no rate limit"),
        (entry("limit group", "email/org:7", {"concurrency": 2, "weight": None}),
         "Set the limits of group org:7 in email: concurrency 2, weight as in the queue"),
        (entry("change job", "email/7", {"data": {}, "delay": 3.0}), "Changed data, delay of job 7 in email"),
        (entry("add job", "email", {"name": "greet"}), "Added a job greet to email"),
        (entry("run schedule", "email/nightly"), "Ran schedule nightly in email"),
        (entry("trip breaker", "stripe", {"seconds": 60.0}), "Opened circuit stripe for 60 s"),
        (entry("signal job", "people/a/b/approval", {"data": True}), "Sent the signal approval to job a/b in people"),
        (entry("signal queue", "people/paid", {"key": "invoice:7"}),
         "Sent the signal paid by the key invoice:7 to people"),
        (entry("rewind job", "people/7", {"to": "draft"}), "Rewound job 7 in people to the step draft"),
        (entry("rewind job", "people/7", {"to": None}), "Rewound job 7 in people to the beginning"),
        (entry("signal job", "people/7/approval", ended="refused: job '7' is not waiting"),
         "Tried to send the signal approval to job 7 in people"),
        (entry("stop worker", "w-1"), "Stopped worker w-1"),
        (entry("repair store", body={"queues": ["a", "b"]}), "Repaired queues a, b"),
        (entry("remove job", "email/7", ended="refused: job 7 is running"), "Tried to remove job 7 in email"),
        (entry("replay letters", body={"where": {"queue": "q"}}, ended="failed"), "Tried to replay dead letters in q"),
        (entry("open the pod", "bay", [1]), "Open the pod bay [1]"),
        (entry("retry jobs", "email", detail='{"state": "fai'), "Retried jobs in email"),
    ],
)  # fmt: skip
def test_an_entry_says_what_was_done_to_what_and_to_how_many(noted: AuditEntry, text: str) -> None:
    assert sentence(noted) == text


def test_what_someone_has_named_is_no_part_of_the_sentence() -> None:
    parts = in_words(entry("cancel job", "email/<b>", {"reason": "x" * 200}))

    assert [part for part in parts if isinstance(part, str)] == ["Cancelled ", "job ", " in ", ": "]
    assert parts[2] == Name("<b>", ("queues", "email", "jobs", "<b>"))
    assert len(parts[-1].text) == 80  # type: ignore[union-attr]
