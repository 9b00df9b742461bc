"""The Redis scripts and their layout: put together from parts, named from one table."""

import hashlib
import re
from pathlib import Path

import pytest

from toril.engines.redis import layout
from toril.engines.redis.connection.url import parse
from toril.engines.redis.layout import client_name, due_of, event_place, may_be_id, stream_id
from toril.engines.redis.options import dump_options, load_options
from toril.engines.redis.scripts import script
from toril.errors import InvalidOption
from toril.model import KEEP_ALL, REMOVE, Backoff, Keep, NewJob

LUA = Path(layout.__file__).parent / "lua"
SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_does_takes_and_answers(name: str) -> None:
    opening = (LUA / f"{name}.lua").read_text().split("-- include")[0]

    for word in ("KEYS", "ARGV", "Returns", "Events"):
        assert f"\n-- {word} " in opening, word


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_each_part_once_and_no_name_left(name: str) -> None:
    made = script(name)

    assert made.sha == hashlib.sha1(made.source.encode()).hexdigest()  # noqa: S324
    assert "-- include" not in made.source
    assert not re.search(r"\b[KGFN]\.\w", made.source)
    defined = re.findall(r"^local function (\w+)", made.source, re.MULTILINE)
    assert len(defined) == len(set(defined))


def test_no_script_spells_out_what_the_layout_knows() -> None:
    keys = {text for text in layout.KEYS.values() if text.startswith("toril")} | {"wait", "delayed", "marker", "meta"}
    spelled = [
        (path.name, text)
        for path in LUA.rglob("*.lua")
        for text in re.findall(r"P \.\. '([\w:-]+)'", path.read_text())
        if text in keys
    ]

    assert spelled == []


def test_all_of_the_layout_is_used() -> None:
    text = "".join(path.read_text() for path in LUA.rglob("*.lua"))
    text += "".join(path.read_text() for path in LUA.parent.rglob("*.py") if path.stem != "layout")
    for letter, table in (("K", layout.KEYS), ("G", layout.FLEET), ("N", layout.NUMBERS)):
        unused = [
            name for name in table if f"{letter}.{name}" not in text and not re.search(rf"[\"']{name}[\"']", text)
        ]
        assert unused == [], letter


@pytest.mark.covers("R181")
def test_every_key_stands_on_the_page_of_the_layout() -> None:
    page = (Path(__file__).parents[2] / "docs" / "layout.md").read_text("utf-8")
    named = set(re.findall(r"[\w:-]+", " ".join(re.findall(r"`([^`]*)`", page)).replace(">", " ").replace("<", " ")))
    keys = {text.strip(":") for text in [*layout.KEYS.values(), *layout.FLEET.values()]}

    missing = [key for key in sorted(keys) if not {key, f"{key}:", f":{key}"} & named]

    assert missing == [], "a key that is not in docs/layout.md: say there what it holds"


@pytest.mark.parametrize(
    ("job_id", "possible"),
    [
        ("1", True), ("x", True), ("repeat:s:5", True), ("a:b:c", True), ("", False), ("meta", False),
        ("1:lock", False),
        ("toril:runs:completed", False), ("metrics:completed:data", False), ("repeat:s", False), ("a:b:c:d", False),
    ],
)  # fmt: skip
def test_a_key_of_the_layout_is_no_job(job_id: str, possible: bool) -> None:
    assert may_be_id(job_id) is possible


def test_a_worker_is_named_as_bullmq_names_its_own() -> None:
    assert client_name("bull", "q2", "wname") == "bull:cTI=:w:wname"


def test_an_event_has_a_number_that_leads_back_to_it() -> None:
    entries = ["1794723172993-0", "1794723172993-1", "1794723172994-0"]

    places = [event_place(entry) for entry in entries]

    assert places == sorted(places)
    assert [stream_id(place) for place in places] == entries
    assert places[-1] < 2**63


def test_a_due_time_is_read_from_its_score() -> None:
    assert due_of("7351186137092096") == 1794723178001


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (NewJob(name="n"), '{"attempts":1,"removeOnComplete":true,"removeOnFail":-1}'),
        (
            NewJob(name="n", id="x", delay=5, priority=2, lifo=True, keep_completed=KEEP_ALL, keep_failed=Keep(3, 60)),
            '{"jobId": "x", "delay": 5, "priority": 2, "lifo": true, "attempts":1,"removeOnComplete":false,'
            '"removeOnFail":{"age":60,"count":3}}',
        ),
    ],
)
def test_options_are_written_as_bullmq_reads_them(given: NewJob, written: str) -> None:
    assert dump_options(given) == written


def test_options_come_back_as_they_were() -> None:
    backoff = Backoff(kind="exponential", delay=1000, cap=9000, jitter=0.5, strategy="ours")
    given = NewJob(name="n", attempts=4, backoff=backoff, timeout=5, keep_completed=Keep(7), keep_logs=0, result_ttl=9)

    found = load_options(dump_options(given))

    for name in ("attempts", "backoff", "timeout", "keep_completed", "keep_failed", "keep_logs", "result_ttl"):
        assert getattr(found, name) == getattr(given, name), name


@pytest.mark.parametrize(
    ("text", "attempts", "completed"),
    [
        (None, 1, KEEP_ALL),
        ("", 1, KEEP_ALL),
        ("[1", 1, KEEP_ALL),
        ('{"attempts":0,"removeOnComplete":true}', 1, REMOVE),
        ('{"attempts":1e400,"removeOnComplete":-1}', 10_000, KEEP_ALL),
        ('{"attempts":2.9,"removeOnComplete":{}}', 2, KEEP_ALL),
        ('{"removeOnComplete":{"count":"x","age":-1}}', 1, KEEP_ALL),
    ],
)
def test_options_that_others_wrote_are_read_as_far_as_they_make_sense(
    text: str | None, attempts: int, completed: Keep
) -> None:
    found = load_options(text)

    assert (found.attempts, found.keep_completed) == (attempts, completed)


@pytest.mark.covers("B61")
@pytest.mark.parametrize(
    "url",
    [
        "redis://h?timeout=0", "redis://h?timeout=x", "redis://h?node_visibility=maybe", "redis://h?max_connections=5",
        "redis://h:99999", "redis://h?retry_on_timeout=1", "redis://h?x",
    ],
)  # fmt: skip
def test_a_redis_url_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        parse(url)


def test_a_redis_url_says_where_and_how() -> None:
    address = parse("rediss://user:p%40ss@host:7000/3?timeout=2.5&node_visibility=0&allow_eviction=1", prefix="{app}")

    assert address.shown == "rediss://host:7000/3"
    assert (address.arguments["username"], address.arguments["password"]) == ("user", "p@ss")
    assert (address.timeout, address.node_visibility, address.allow_eviction) == (2.5, False, True)
    assert "p@ss" not in repr(address)
    assert parse("unix:///run/redis.sock").arguments["path"] == "/run/redis.sock"
