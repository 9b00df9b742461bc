"""The text of a step's row and of a rest: every store keeps it, and later versions read it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toril.codec.steps import (
    digest_of,
    dump_calls,
    dump_failure,
    dump_received,
    dump_rest,
    dump_retry,
    dump_step,
    dump_waits,
    load_calls,
    load_failure,
    load_received,
    load_rest,
    load_retry,
    load_step,
    load_version,
    load_waits,
)
from toril.errors import InvalidName, InvalidOption, PayloadTooLarge, TorilError, Undecodable
from toril.model import (
    MAX_SIGNAL,
    TIMED,
    JobRef,
    Lease,
    NewSignal,
    ReceivedSignal,
    Rest,
    RestReason,
    RestRow,
    SignalWait,
    StepFailure,
    StepKind,
    StepReport,
    StepRetry,
    StepRow,
    branch_scope,
    called_job,
    stored_key,
)

NOW = 1_790_000_000_000
LEASE = Lease("q", "1", "token")
NUMBERS = st.integers(0, 2**53)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
WORDS = st.text("abcä -_.[]\"\\'", min_size=1, max_size=20).filter(lambda text: text.strip() != "")
WAITS = st.builds(SignalWait, WORDS, st.none() | WORDS)
REFS = st.builds(JobRef, TEXTS, TEXTS)


def row(kind: StepKind, text: str = "", *, key: str = "draft", until: int | None = None, **given: Any) -> StepRow:
    plain: dict[str, Any] = {"seq": 3, "at": NOW, "took": 120, "digest": "0a1b2c3d", "reruns": 0, "attempt": 2}
    return StepRow(key=key, kind=kind, text=text, until=until, **plain | given)


@st.composite
def rows(draw: st.DrawFn) -> StepRow:
    kind = draw(st.sampled_from(StepKind))
    timed = kind in TIMED
    return StepRow(
        key="k",
        kind=kind,
        seq=draw(NUMBERS),
        at=draw(NUMBERS),
        took=draw(NUMBERS),
        digest=draw(st.none() | st.text("0123456789abcdef", min_size=8, max_size=8)),
        reruns=draw(st.integers(0, 10**9 - 1)),
        attempt=draw(st.integers(0, 10_000)),
        until=draw(st.none() | NUMBERS) if timed else None,
        text=draw(TEXTS),
    )


# A row of each kind as every version of Toril writes it. A change here needs a reader for the old form.
GOLDEN = {
    'd 3 1790000000000 120 0a1b2c3d 0.2 {"id": 7, "name": "Ä b"}': row(StepKind.DONE, '{"id": 7, "name": "Ä b"}'),
    "d 1 1790000000000 0 - 0.0 null": row(StepKind.DONE, "null", seq=1, took=0, digest=None, attempt=0),
    'e 3 1790000000000 120 0a1b2c3d 1.2 ["CardDeclined","no money",["shop.CardDeclined","builtins.Exception"]]': row(
        StepKind.FAILED,
        dump_failure(StepFailure("CardDeclined", "no money", ("shop.CardDeclined", "builtins.Exception"))),
        reruns=1,
    ),
    't 3 1790000000000 120 0a1b2c3d 0.2 1790000005000 [2,"ConnectionError","refused"]': row(
        StepKind.RETRY, dump_retry(StepRetry(2, "ConnectionError", "refused")), until=NOW + 5_000
    ),
    "z 3 1790000000000 120 0a1b2c3d 0.2 1790000005000": row(StepKind.SLEEP, until=NOW + 5_000),
    'p 3 1790000000000 120 0a1b2c3d 0.2 1790000005000 [["approval",null],["paid","invoice:7"]]': row(
        StepKind.WAIT, dump_waits([SignalWait("approval"), SignalWait("paid", "invoice:7")]), until=NOW + 5_000
    ),
    'p 3 1790000000000 120 0a1b2c3d 0.2 - [["approval",null]]': row(
        StepKind.WAIT, dump_waits([SignalWait("approval")])
    ),
    'w 3 1790000000000 120 0a1b2c3d 0.2 1790000005000 ["paid","invoice:7"] {"amount": 5.0}': row(
        StepKind.RECEIVED,
        dump_received(ReceivedSignal(SignalWait("paid", "invoice:7"), '{"amount": 5.0}')),
        until=NOW + 5_000,
    ),
    "w 3 1790000000000 120 0a1b2c3d 0.2 1790000005000 null": row(
        StepKind.RECEIVED, dump_received(None), until=NOW + 5_000
    ),
    'c 3 1790000000000 120 0a1b2c3d 0.2 [["reports","c0123"],["mail","7"]]': row(
        StepKind.CALLED, dump_calls([JobRef("reports", "c0123"), JobRef("mail", "7")])
    ),
    "v 3 1790000000000 120 0a1b2c3d 0.2 4": row(StepKind.VERSION, "4"),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_row_is_written_and_read_as_ever(text: str) -> None:
    assert dump_step(GOLDEN[text]) == text
    assert load_step("draft", text) == GOLDEN[text]


def test_every_kind_of_row_has_an_example() -> None:
    assert {each.kind for each in GOLDEN.values()} == set(StepKind)


@given(rows())
def test_a_row_comes_back_as_it_was(written: StepRow) -> None:
    assert load_step("k", dump_step(written)) == written


@given(TEXTS | st.binary().map(lambda data: data.decode("latin-1")))
@example("x 1 2 3 - 0.0 a kind of a later version")
@example("z 1 2 3 - 0.0 tomorrow")
@example("z 1 2 3 - 0.0 ")
@example("d 1 2 3 - 0.0")
@example("d 1 2 3 0A1B2C3D 0.0 1")
@example("d \u0661 2 3 - 0.0 1")
@example("d 1 2 3 - 0 1")
@example("d -1 2 3 - 0.0 1")
@example("")
def test_a_foreign_text_is_no_row(text: str) -> None:
    found = load_step("k", text)

    assert found is None or load_step("k", dump_step(found)) == found


def test_a_value_may_have_lines_and_spaces_at_its_ends() -> None:
    text = ' {\n"a": 1\n} \n'

    assert load_step("draft", dump_step(row(StepKind.DONE, text))) == row(StepKind.DONE, text)


# What rows say

READERS: list[Callable[[str], object]] = [
    load_failure, load_retry, load_received, load_waits, load_calls, load_version
]  # fmt: skip


@given(st.builds(StepFailure, TEXTS, TEXTS, st.lists(TEXTS, max_size=5).map(tuple)))
def test_a_failure_comes_back_as_it_was(failure: StepFailure) -> None:
    assert load_failure(dump_failure(failure)) == failure


@given(st.builds(StepRetry, NUMBERS, TEXTS, TEXTS))
def test_a_retry_comes_back_as_it_was(retry: StepRetry) -> None:
    assert load_retry(dump_retry(retry)) == retry


@given(st.none() | st.builds(ReceivedSignal, WAITS, TEXTS))
def test_a_signal_comes_back_with_its_payload_to_the_letter(received: ReceivedSignal | None) -> None:
    assert load_received(dump_received(received)) == received


@given(st.lists(WAITS))
def test_a_wait_comes_back_as_it_was(waits: list[SignalWait]) -> None:
    assert load_waits(dump_waits(waits)) == tuple(waits)


@given(st.lists(REFS))
def test_called_jobs_come_back_as_they_were(refs: list[JobRef]) -> None:
    assert load_calls(dump_calls(refs)) == tuple(refs)


@given(st.sampled_from(READERS), TEXTS | st.sampled_from([
    "null", "[]", "[1]", "{}", '["a","b"]', '["a","b","c"]', '["a","b",[1]]', "[[1,2]]", '[["",null]]', "1e400", "true",
    "[[]]", '[["a:b",null]] 1', "[" * 100_000, "9" * 5_000, '["\\ud800","b",[]]',
]))  # fmt: skip
def test_a_reader_raises_nothing_but_undecodable(reader: Callable[[str], object], text: str) -> None:
    with suppress(Undecodable):
        reader(text)


def test_a_long_reason_is_cut_and_stays_readable() -> None:
    failure = load_failure(dump_failure(StepFailure("E", "ä" * 100_000, ("m.E",) * 1_000)))

    assert 64 * 1024 - 2 <= len(failure.reason.encode()) <= 64 * 1024
    assert failure.reason.endswith("…")
    assert len(failure.lineage) == 50


# Why a job rests

REASONS = st.builds(
    RestReason, TEXTS, st.sampled_from(StepKind), st.none() | NUMBERS, st.lists(WAITS, max_size=3).map(tuple)
)
REST = RestRow(
    NOW,
    NOW + 5_000,
    (
        RestReason("cool-off", StepKind.SLEEP, NOW + 5_000),
        RestReason("gather[1]/approval", StepKind.WAIT, None, (SignalWait("approval"), SignalWait("paid", "7"))),
    ),
    children=True,
)


def test_a_rest_is_written_and_read_as_ever() -> None:
    text = (
        '{"since":1790000000000,"until":1790000005000,"children":true,"for":[["cool-off","z",1790000005000,[]],'
        '["gather[1]/approval","p",null,[["approval",null],["paid","7"]]]]}'
    )

    assert dump_rest(REST) == text
    assert load_rest(text) == REST


@given(
    st.builds(
        RestRow,
        NUMBERS,
        st.none() | NUMBERS,
        st.lists(REASONS, max_size=3).map(tuple),
        st.booleans(),
    )
)
def test_a_rest_comes_back_as_it_was(rest: RestRow) -> None:
    assert load_rest(dump_rest(rest)) == rest


@given(st.none() | TEXTS | st.sampled_from([
    "{}", "[]", "null", '{"since":1,"until":2,"children":true,"for":[["k","?",1,[]]]}',
    '{"since":"1","until":2,"children":true,"for":[]}', '{"since":1,"until":2,"children":true,"for":7}',
]))  # fmt: skip
def test_a_foreign_text_is_no_rest(text: str | None) -> None:
    found = load_rest(text)

    assert found is None or load_rest(dump_rest(found)) == found


# Keys, digests and checks


def test_keys_are_made_of_scope_name_key_and_occurrence() -> None:
    inner = branch_scope(stored_key(branch_scope("gather", 1), "pages", occurrence=2), 0)

    assert stored_key("", "draft") == "draft"
    assert stored_key("", "draft", occurrence=2) == "draft#2"
    assert stored_key("", "draft", "a/b:c#2") == "draft:a/b:c#2"
    assert stored_key(inner, "parse") == "gather[1]/pages#2[0]/parse"


@pytest.mark.parametrize("name", ["", " ", "a/b", "a#2", "a:b", "a\nb", "a" * 129, "ä" * 65, "a\x00", 7, None])
def test_a_name_that_could_be_read_as_another_key_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName, match="a step's name"):
        stored_key("", name)
    with pytest.raises(InvalidName, match="a signal's name"):
        SignalWait(name)


@pytest.mark.parametrize("key", ["", "a\nb", "a" * 257])
def test_a_key_is_one_line_of_256_bytes(key: str) -> None:
    with pytest.raises(InvalidName, match="a step's key"):
        stored_key("", "draft", key)
    with pytest.raises(InvalidName, match="a signal's key"):
        SignalWait("paid", key)


def test_a_stored_key_has_at_most_512_bytes() -> None:
    with pytest.raises(InvalidName, match="at most 512 bytes"):
        stored_key("gather[0]/" * 30, "a" * 128, "b" * 256)


def test_a_called_job_has_the_same_id_in_each_run_and_another_in_each_epoch() -> None:
    job = JobRef("q", "1")

    assert called_job(job, NOW, 0, "report") == called_job(job, NOW, 0, "report")
    others = [
        called_job(job, NOW, 0, "report", 1),
        called_job(job, NOW, 1, "report"),
        called_job(job, NOW + 1, 0, "report"),
    ]
    assert len({called_job(job, NOW, 0, "report"), *others}) == 4
    assert called_job(job, NOW, 0, "report") == "cf419aab6a807136a08951d024145384"


def test_a_digest_tells_arguments_apart_where_they_are_plain() -> None:
    assert digest_of([]) == "4f53cda1"
    assert digest_of(["a", 1]) == digest_of(("a", 1)) != digest_of(["a", 2])
    assert digest_of([object()]) is None
    assert digest_of(["a" * 64 * 1024]) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rest(key="k", kind=StepKind.DONE),
        lambda: Rest(key="k", kind=StepKind.SLEEP),
        lambda: Rest(key="k", kind=StepKind.SLEEP, delay=-1),
        lambda: Rest(key="k", kind=StepKind.SLEEP, delay=1, recorded=True),
        lambda: Rest(key="k", kind=StepKind.CALLED, delay=1),
        lambda: Rest(key="k", kind=StepKind.WAIT),
        lambda: Rest(key="k", kind=StepKind.SLEEP, delay=1, signals=(SignalWait("s"),)),
        lambda: Rest(key="k", kind=StepKind.SLEEP, delay=1, digest="nothex!!"),
        lambda: StepReport(LEASE, "k", StepKind.DONE, "1", delay=1),
        lambda: StepReport(LEASE, "k", StepKind.SLEEP),
        lambda: StepReport(LEASE, "k", StepKind.SLEEP, delay=1, until=2),
        lambda: StepReport(LEASE, "k", StepKind.RECEIVED, "null"),
        lambda: StepReport(LEASE, "k", StepKind.DONE, "1", until=1),
        lambda: NewSignal(name="s"),
        lambda: NewSignal(name="s", job_id="1", key="k"),
        lambda: NewSignal(name="s", job_id="1", ttl=0),
        lambda: NewSignal(name="s", job_id="1", ttl=32 * 86_400_000),
    ],
)  # fmt: skip
def test_what_no_store_could_keep_is_refused_before_it_gets_there(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidOption):
        make()


def test_a_signal_has_at_most_256_kilobytes() -> None:
    NewSignal(name="s", job_id="1", payload="1" * MAX_SIGNAL)
    with pytest.raises(PayloadTooLarge, match="at most 262144 bytes"):
        NewSignal(name="s", job_id="1", payload="ä" * (MAX_SIGNAL // 2 + 1))


@given(st.text() | st.none() | st.integers())
def test_whatever_a_key_is_the_error_is_ours(key: Any) -> None:
    for make in (lambda: StepReport(LEASE, key, StepKind.DONE, "1"), lambda: NewSignal(name="s", key=key)):
        with suppress(TorilError):
            make()
