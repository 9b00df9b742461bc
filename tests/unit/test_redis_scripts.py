"""The Redis scripts and their layout: assembled from subjects, named from one table."""

import hashlib
import re
from pathlib import Path

import pytest

from toril.engines.redis import layout
from toril.engines.redis.connection.url import parse
from toril.engines.redis.layout import client_name, due_of, event_place, may_be_id, stream_id
from toril.engines.redis.options import dump_options, load_options
from toril.engines.redis.scripts import Assembler, BadScript, assembler, script
from toril.errors import InvalidOption
from toril.model import KEEP_ALL, REMOVE, Backoff, JobOptions, Keep, NewJob

LUA = Path(layout.__file__).parent / "lua"
SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))
SUBJECTS = sorted(f"lib/{path.stem}" for path in LUA.glob("lib/*.lua"))
LUA_ITSELF = {
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
    "repeat", "return", "then", "true", "until", "while", "ARGV", "KEYS", "cjson", "cmsgpack", "ipairs", "math", "next",
    "pairs", "pcall", "redis", "string", "table", "tonumber", "tostring", "type", "unpack", "K", "G", "F", "N",
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_does_takes_and_answers(name: str) -> None:
    opening = (LUA / f"{name}.lua").read_text().split("-- uses")[0]

    for word in ("KEYS", "ARGV", "Returns", "Events"):
        assert f"\n-- {word} " in opening, word


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_each_function_once_and_no_name_left(name: str) -> None:
    made = script(name)

    assert made.sha == hashlib.sha1(made.source.encode()).hexdigest()  # noqa: S324
    assert not re.search(r"^-- (?:uses|then|needs)", made.source, re.MULTILINE)
    assert not re.search(r"\b[KGFN]\.\w", made.source)
    defined = re.findall(r"^(?:local )?function ([\w.]+)", made.source, re.MULTILINE)
    assert len(defined) == len(set(defined))


def test_every_function_is_reached_by_a_script() -> None:
    assert assembler().unreached(SCRIPTS) == []


@pytest.mark.parametrize("name", [*SCRIPTS, *SUBJECTS])
def test_what_is_said_in_lua_names_only_what_it_declares(name: str) -> None:
    """A name of a subject's state is its own: no function of another subject, and no script, can use it."""
    context = code_of(LUA / "lib" / "context.lua")
    common = set(re.findall(r"\w+", " ".join(re.findall(r"^local (?:function )?([\w, ]+)", context, re.MULTILINE))))
    code = code_of(LUA / f"{name}.lua")
    names = set(re.findall(r"(?<![\w.:])[A-Za-z_]\w*", re.sub(r"[{,]\s*\w+ = ", ",", code)))

    unknown = names - LUA_ITSELF - common - {subject.removeprefix("lib/") for subject in SUBJECTS} - declared_in(code)

    assert unknown == set()


def code_of(path: Path) -> str:
    """Lua without its texts and comments."""
    return re.sub(r"'(?:[^'\\\n]|\\.)*'|--.*", "0", path.read_text())


def declared_in(code: str) -> set[str]:
    """The locals, arguments and loop variables of Lua, wherever they hold."""
    places = (r"\blocal (?:function )?([\w, ]+)", r"\bfunction[^(\n]*\(([^)]*)\)", r"\bfor ([\w, ]+?) (?:in\b|=)")
    return {name for place in places for words in re.findall(place, code) for name in re.findall(r"\w+", words)}


# Texts of scripts and subjects that do not fit, and what is said of them.
FIT = {
    "lib/context.lua": "-- What all have.\n-- needs nothing\nlocal context = {}\nlocal P = KEYS[1]\n",
    "lib/low.lua": "-- Below.\n-- needs nothing\nlocal low = {count = 0}\n\n"
    "-- One.\nfunction low.one() return P end\n\n"
    "function low.two()\n  return low.one() + low.count  -- not high.three()\nend\n",
    "lib/high.lua": "-- Above.\n-- needs low\nlocal high = {verbs = {}}\n\nfunction high.verbs.stop() end\n\n"
    "function high.verbs.go() return low.two() end\n\nfunction high.three() return high.verbs[ARGV[1]] end\n",
    "script.lua": "-- What it does.\n-- uses low\nif low.one() then return end\n-- then high\nreturn high.three()\n",
}


def assembled(**changed: str) -> str:
    texts = FIT | {f"{name.replace('__', '/')}.lua": text for name, text in changed.items()}
    subjects = [name[4:-4] for name in texts if name.startswith("lib/")]
    return Assembler(texts.__getitem__, subjects).assemble("script")


def test_a_stage_gets_what_it_reaches_and_no_stage_before_it_has() -> None:
    lines = assembled().splitlines()

    assert lines == [
        "local context = {}", "local P = KEYS[1]", "local low = {one = 0, count = 0}",
        "function low.one() return P end",
        "if low.one() then return end",
        "local high = {three = 0, verbs = {}}",
        "function low.two()", "  return low.one() + low.count  -- not high.three()", "end",
        "function high.verbs.stop() end", "function high.verbs.go() return low.two() end",
        "function high.three() return high.verbs[ARGV[1]] end",
        "return high.three()",
    ]  # fmt: skip


def test_what_a_stage_does_not_reach_is_not_there() -> None:
    text = assembled(script="-- What it does.\n-- uses low\nreturn low.one()\n")

    assert "high" not in text
    assert "low.two" not in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"script": "-- It.\n-- uses lower\nreturn 1\n"}, "script.lua: there is no subject 'lower'"),
        ({"script": "-- It.\n-- uses low\nreturn low.three()\n"}, "script: there is no low.three"),
        ({"script": "-- It.\n-- uses low\nreturn high.three()\n"}, "script: uses high.three, and does not need 'high'"),
        (
            {"script": "-- It.\n-- uses low\nlow.one()\nreturn high.three()\n-- then high\n"},
            "script: uses high.three, and does not need 'high'",
        ),
        ({"script": "-- It.\nreturn 1\n"}, "script: what it uses must be said"),
        ({"script": "return 1\n-- uses low\n"}, "script: what it uses must be said"),
        ({"script": "-- It.\n-- uses high\nlocal low = 1\nreturn low\n"}, "script: 'low' is a subject"),
        ({"script": "-- It.\n-- uses high\nfor _, low in pairs(ARGV) do end\n"}, "script: 'low' is a subject"),
        (
            {"script": "-- It.\n-- uses high\nhigh.three()\nreturn low.one()\n"},
            "script: uses low.one, and does not need 'low'",
        ),
        ({"script": "-- It.\n-- uses low high\nreturn low.one()\n"}, "script: names 'high', and does not use it"),
        (
            {"script": "-- It.\n-- uses low high\nlow.one()\n-- then nothing\nreturn high.three()\n"},
            "script: names 'high', and does not use it",
        ),
        (
            {"script": "-- It.\n-- uses low\nlow.one()\n-- then low high\nlow.two()\nreturn high.three()\n"},
            "script: names 'low' twice",
        ),
        ({"script": "-- It.\n-- uses low context\nreturn low.one()\n"}, "script: every script has 'context'"),
        (
            {"lib__low": "-- Below.\n-- needs high\nlocal low = {}\nfunction low.one() return high.three() end\n"},
            "script.lua needs low needs high needs low",
        ),
        (
            {"lib__low": "-- Below.\n-- needs low\nlocal low = {}\nfunction low.one() return low.one() end\n"},
            "script.lua needs low needs low",
        ),
        (
            {"lib__high": "-- Above.\n-- needs lower\nlocal high = {}\nfunction high.three() return lower.one() end\n"},
            "high: there is no subject 'lower'",
        ),
        ({"lib__high": "-- Above.\n-- needs low\nlocal high = {}\n"}, "high: names 'low', and does not use it"),
        (
            {"lib__high": "-- Above.\n-- needs low\nlocal high = {}\n-- low.one()\n"},
            "high: names 'low', and does not use it",
        ),
        (
            {"lib__low": "-- Below.\n-- needs nothing\nlocal low = {}\nfunction low.one() return high.three() end\n"},
            "low: uses high.three, and does not need 'high'",
        ),
        (
            {"lib__low": "-- Below.\n-- needs nothing\nlocal low = {}\nfunction low.one(high) return high end\n"},
            "low: 'high' is a subject",
        ),
        (
            {"lib__low": "-- Below.\n-- needs nothing\nlocal low = {}\nfunction high.one() return 1 end\n"},
            "low: defines a function of 'high'",
        ),
        (
            {"lib__low": "-- Below.\n-- needs nothing\nlocal low = {}\nfunction low.one() return 1 end\nlow.x = 1\n"},
            "low: its state must stand before its functions",
        ),
        (
            {"script": "-- It.\n-- uses low\nlocal P, x = low.one()\n-- then high\nreturn high.three()\n"},
            "script: 'P' is declared in two places",
        ),
        (
            {"lib__high": "-- Above.\n-- needs nothing\nlocal high = {}\nlocal P = 1\nfunction high.three() end\n"},
            "script: 'P' is declared in two places",
        ),
        ({"lib__low": "-- needs nothing\nlocal low = {}\n"}, "low: its first line must say"),
    ],
)
def test_what_does_not_fit_is_not_assembled(changed: dict[str, str], said: str) -> None:
    with pytest.raises(BadScript, match=f"^{re.escape(said)}"):
        assembled(**changed)


def test_a_function_that_no_script_reaches_is_found() -> None:
    texts = FIT | {"script.lua": "-- It.\n-- uses low\nreturn low.one()\n"}
    subjects = ["context", "low", "high"]

    assert Assembler(texts.__getitem__, subjects).unreached(["script"]) == ["high.verbs", "high.three", "low.two"]


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
            NewJob(
                name="n",
                id="x",
                delay=5,
                priority=2,
                lifo=True,
                options=JobOptions(keep_completed=KEEP_ALL, keep_failed=Keep(3, 60)),
            ),
            '{"jobId": "x", "delay": 5, "priority": 2, "lifo": true, "attempts":1,"removeOnComplete":false,'
            '"removeOnFail":{"age":60,"count":3}}',
        ),
    ],
)
def test_options_are_written_as_bullmq_reads_them(given: NewJob, written: str) -> None:
    assert dump_options(given) == written


def test_options_come_back_as_they_were() -> None:
    backoff = Backoff(kind="exponential", delay=1000, cap=9000, jitter=0.5, strategy="ours")
    options = JobOptions(
        backoff=backoff, timeout=5, keep_completed=Keep(7), keep_logs=0, result_ttl=9, breaker="host", subject="acme"
    )

    found = load_options(dump_options(NewJob(name="n", attempts=4, options=options)))

    assert (found.attempts, found.options) == (4, options)


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

    assert (found.attempts, found.options.keep_completed) == (attempts, completed)


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


def test_the_page_on_architecture_counts_what_an_exchange_defines() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "architecture.md").read_text().split())
    fast, _, _ = script("exchange").source.partition("if answer then return answer end")
    defined = [re.findall(r"^function (\w+)\.", text, re.MULTILINE) for text in (fast, script("exchange").source)]
    (usual, few), (every, many) = [(len(found), len(set(found))) for found in defined]

    assert f"{few} of {len(SUBJECTS)} Lua modules on the fast path" in page
    assert f"brings the script to {usual} functions from {few} modules" in page
    assert f"adds {every - usual} functions and brings it to {many} modules" in page
