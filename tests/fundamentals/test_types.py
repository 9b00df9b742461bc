"""Payloads and results by their type: checked when a job is added, and again before it runs."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from tests.fundamentals.apps import ADDS, drained, unchanged
from toril import App, InvalidPayload, JobContext, NotSerializable, SyncJobContext, handler
from toril.model import KEEP_ALL, JobOptions, NewJob


class Address(BaseModel):
    email: str
    verified: bool = False


class Welcome(BaseModel):
    user_id: int
    to: Address
    sent_at: datetime | None = None


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")


class OneWay(BaseModel):
    """Writes a name that it does not read."""

    user_id: int = Field(validation_alias="in", serialization_alias="out")


@dataclass
class Part:
    sku: str
    price: Decimal


@dataclass
class Order:
    number: int
    parts: list[Part] = field(default_factory=list)
    note: str | None = None


class Row(TypedDict):
    key: str


class Import(TypedDict):
    rows: list[Row]
    dry: NotRequired[bool]


async def model(ctx: JobContext[Welcome]) -> Any:
    return [type(ctx.data).__name__, ctx.data.to.email]


async def data_class(ctx: JobContext[Order]) -> Any:
    return [type(ctx.data).__name__, str(sum(part.price for part in ctx.data.parts))]


async def typed_dict(ctx: JobContext[Import]) -> Any:
    return [type(ctx.data).__name__, ctx.data["rows"][0]["key"]]


async def optional(ctx: JobContext[int | None]) -> Any:
    return [type(ctx.data).__name__, ctx.data]


async def nested(ctx: JobContext[dict[str, list[Part]]]) -> Any:
    return [type(ctx.data["a"][0]).__name__, ctx.data["a"][0].sku]


async def nothing(ctx: JobContext[None]) -> Any:
    return ctx.data


def plain(ctx: SyncJobContext[Order]) -> Any:
    return [type(ctx.data).__name__, ctx.data.number]


HANDLERS: list[Any] = [model, data_class, typed_dict, optional, nested, nothing, plain]

GOOD: dict[str, tuple[str, Any, Any]] = {
    "model": ("model", Welcome(user_id=1, to=Address(email="a@b.c")), ["Welcome", "a@b.c"]),
    "model as dict": ("model", {"user_id": 1, "to": {"email": "a@b.c"}}, ["Welcome", "a@b.c"]),
    "model with a time": (
        "model",
        Welcome(user_id=1, to=Address(email="x"), sent_at=datetime(2026, 1, 1, tzinfo=UTC)),
        ["Welcome", "x"],
    ),
    "dataclass": ("data_class", Order(1, [Part("a", Decimal("1.5")), Part("b", Decimal("2"))]), ["Order", "3.5"]),
    "dataclass as dict": ("data_class", {"number": 1, "parts": []}, ["Order", "0"]),
    "typed dict": ("typed_dict", {"rows": [{"key": "k"}]}, ["dict", "k"]),
    "optional": ("optional", None, ["NoneType", None]),
    "optional number": ("optional", 5, ["int", 5]),
    "nested": ("nested", {"a": [Part("sku", Decimal(1))]}, ["Part", "sku"]),
    "nothing": ("nothing", None, None),
    "plain function": ("plain", Order(7), ["Order", 7]),
}


@pytest.mark.covers("R032", "S33")
@pytest.mark.parametrize(("name", "data", "result"), GOOD.values(), ids=GOOD)
async def test_a_payload_arrives_as_what_its_handler_declares(app: App, name: str, data: Any, result: Any) -> None:
    queue = app.queue("q", HANDLERS)
    job = await queue.add(name, data, result_ttl=60)
    await drained(app)

    assert await job.result(5) == result


BAD: dict[str, tuple[str, Any, str]] = {
    "missing": ("model", {"user_id": 1}, r"job 'model': data\.to: field required"),
    "wrong": ("model", {"user_id": "x", "to": {"email": "a"}}, r"data\.user_id: input should be a valid integer.*'x'"),
    "nested": ("model", {"user_id": 1, "to": {"email": 5}}, r"data\.to\.email: input should be a valid string, not 5"),
    "two faults": ("model", {"user_id": "x", "to": 5}, r"data\.user_id: .* \(and 1 more\)"),
    "another type": ("model", Order(1), r"data: input should be a valid dictionary or instance of Welcome"),
    "nothing at all": ("model", None, r"data: input should be a valid dictionary or instance of Welcome, not None"),
    "made of wrong things": ("data_class", Order("x"), r"data\.number: input should be a valid integer"),  # type: ignore[arg-type]
    "deep in a dataclass": ("data_class", Order(1, [Part("a", "x")]), r"data\.parts\[0\]\.price: "),  # type: ignore[arg-type]
    "dataclass as dict": ("data_class", {"number": 1, "parts": [{"sku": 1}]}, r"data\.parts\[0\]\.sku: "),
    "typed dict": ("typed_dict", {"rows": [{"key": "k"}, {}]}, r"data\.rows\[1\]\.key: field required"),
    "not required": ("typed_dict", {"rows": [], "dry": "perhaps"}, r"data\.dry: input should be a valid boolean"),
    "optional": ("optional", "x", r"job 'optional': data: input should be a valid integer"),
    "in a mapping": ("nested", {"a": [5]}, r"data\.a\[0\]: input should be a dictionary or an instance of Part"),
    "something for nothing": ("nothing", {}, r"job 'nothing': data: input should be None, not {}"),
    "plain function": ("plain", {}, r"data\.number: field required"),
}


@pytest.mark.covers("R032")
@pytest.mark.parametrize(("name", "data", "says"), BAD.values(), ids=BAD)
async def test_a_payload_of_the_wrong_type_is_not_added(app: App, way: str, name: str, data: Any, says: str) -> None:
    queue = app.queue("q", HANDLERS)

    async with unchanged(app):
        with pytest.raises(InvalidPayload, match=says) as caught:
            await ADDS[way](queue, name, data)
    assert "\n" not in str(caught.value)


@pytest.mark.covers("R032", "B33")
@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("model", '{"user_id":"x","to":{"email":"a"}}', "data.user_id: input should be a valid integer"),
        ("model", "null", "data: input should be"),
        ("data_class", '{"number":1,"parts":[{"sku":"a"}]}', "data.parts[0].price: field required"),
        ("typed_dict", '{"rows":{}}', "data.rows: input should be a valid"),
        ("optional", '"x"', "data: input should be a valid integer"),
        ("plain", "[]", "data: input should be"),
    ],
)
async def test_a_payload_that_others_stored_wrongly_fails_once_and_is_never_run(
    app: App, name: str, text: str, says: str
) -> None:
    queue = app.queue("q", HANDLERS)
    await app.store.add("q", [NewJob(name=name, data=text, attempts=5, options=JobOptions(keep_failed=KEEP_ALL))])
    await drained(app)

    (job,) = await queue.jobs("failed")
    assert (job.attempts_made, job.data) == (1, text)
    assert job.error is not None
    assert job.error.startswith(says)


@pytest.mark.covers("R032")
async def test_a_payload_is_checked_when_it_is_changed(app: App) -> None:
    queue = app.queue("q", HANDLERS)
    job = await queue.add(model, Welcome(user_id=1, to=Address(email="a")), delay=60)

    with pytest.raises(InvalidPayload, match=r"data\.user_id: input should be a valid integer"):
        await job.update_data({"user_id": "x", "to": {"email": "a"}})
    await job.update_data(Welcome(user_id=2, to=Address(email="b")))

    assert (await job.refresh()).data == Welcome(user_id=2, to=Address(email="b"))


async def test_a_model_that_goes_by_other_names_is_stored_by_those(app: App) -> None:
    async def work(ctx: JobContext[Aliased]) -> int:
        return ctx.data.user_id

    queue = app.queue("q", [work])
    job = await queue.add(work, Aliased(userId=5), result_ttl=60)
    row = (await job.refresh()).row
    await drained(app)

    assert row is not None
    assert row.data == '{"userId":5}'
    assert await job.result(5) == 5


async def test_a_model_that_cannot_read_what_it_writes_is_refused_at_once(app: App) -> None:
    async def work(ctx: JobContext[OneWay]) -> None: ...

    queue = app.queue("q", [work])
    async with unchanged(app):
        with pytest.raises(InvalidPayload, match=r"data\.in: field required"):
            await queue.add(work, OneWay.model_validate({"in": 5}))


async def test_what_a_type_cannot_turn_into_json_is_refused(app: App) -> None:
    class Loose(BaseModel):
        anything: Any

    async def work(ctx: JobContext[Loose]) -> None: ...

    queue = app.queue("q", [work])
    async with unchanged(app):
        with pytest.raises(NotSerializable, match=r"data cannot be serialized to JSON: .*object"):
            await queue.add(work, Loose(anything=object()))


@pytest.mark.covers("B19", "B23")
@pytest.mark.parametrize(("value", "says"), [(float("nan"), "is nan"), (b"x", "is of type bytes"), ({1}, "type set")])
async def test_what_is_declared_as_plain_json_is_held_to_it(app: App, value: Any, says: str) -> None:
    async def mapping(ctx: JobContext[dict[str, Any]]) -> None: ...

    async def listed(ctx: JobContext[list[Any] | None]) -> None: ...

    queue = app.queue("q", [mapping, listed])
    async with unchanged(app):
        with pytest.raises(NotSerializable, match=rf"data\.a\.b {says}|data\.a\.b is of {says}"):
            await queue.add(mapping, {"a": {"b": value}})
        with pytest.raises(NotSerializable, match=rf"data\[0\] {says}|data\[0\] is of {says}"):
            await queue.add(listed, [value])


async def test_a_type_that_cannot_be_checked_is_said_so(app: App) -> None:
    class Opaque:
        pass

    async def work(ctx: JobContext[Opaque]) -> None: ...

    queue = app.queue("q", [work])
    async with unchanged(app):
        with pytest.raises(InvalidPayload, match=r"data cannot be validated against <class 'tests.*: Unable to"):
            await queue.add(work, Opaque())


async def test_results_come_back_as_what_was_declared(app: App) -> None:
    async def make(ctx: JobContext[int]) -> Order:
        return Order(ctx.data, [Part("a", Decimal("1.5"))])

    queue = app.queue("q", [make])
    job = await queue.add(make, 5, result_ttl=60)
    await drained(app)

    assert await job.result(5) == Order(5, [Part("a", Decimal("1.5"))])


async def test_an_alias_is_checked_like_the_name_it_stands_for(app: App) -> None:
    queue = app.queue("q", {"welcome": handler(model, aliases=["old_welcome"])})

    with pytest.raises(InvalidPayload, match=r"job 'old_welcome': data\.user_id: field required"):
        await queue.add("old_welcome", {"to": {"email": "x"}})


SNIPPET = """
    from dataclasses import dataclass
    from typing import Any
    from toril import App, Job, JobContext, SyncJobContext, handler

    @dataclass
    class Order:
        number: int

    async def typed(ctx: JobContext[Order]) -> str: return ""
    async def alone(ctx: JobContext[None]) -> int: return 1
    def plain(ctx: SyncJobContext[Order]) -> bytes: return b""
    def plain_alone(ctx: SyncJobContext[None]) -> float: return 1.0
    async def raw(job: Job[Any]) -> bool: return True
    async def optional(ctx: JobContext[int | None]) -> list[int]: return []

    app = App("memory://")
    queue = app.queue("q", [typed, alone, plain, handler(typed, timeout=5)])

    async def good() -> None:
        reveal_type(await queue.add(typed, Order(1), delay=5))
        reveal_type(await queue.add_and_wait(typed, Order(1), timeout=5))
        reveal_type(await queue.add_and_wait(alone))
        reveal_type(await queue.add_and_wait(plain, Order(1)))
        reveal_type(await queue.add_and_wait(plain_alone))
        reveal_type(await queue.add_and_wait(raw, {"any": 1}))
        reveal_type(await queue.add_and_wait(optional, 5))
        reveal_type(await queue.add_and_wait(optional, None))
        reveal_type(await queue.add_and_wait("by name", 5))

    async def bad() -> None:
        await queue.add(typed, {"number": 1})
        await queue.add_and_wait(typed, 5)
        await queue.add(typed)
        await queue.add(plain, 5)
        await queue.add(optional, "5")
        await queue.add(typed, Order(1), attempt=3)
        await queue.add_and_wait(typed, Order(1), delay=None)
"""


@pytest.mark.covers("R037")
def test_the_type_checker_knows_payloads_options_and_results(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(textwrap.dedent(SNIPPET))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(snippet)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root).stdout.splitlines()
    lines = textwrap.dedent(SNIPPET).splitlines()

    revealed = [line.split('"')[1] for line in said if "note: Revealed type" in line]
    assert [kind.replace("builtins.", "").replace("toril.job.", "") for kind in revealed] == [
        "Job[str]", "str", "int", "bytes", "float", "bool", "list[int]", "list[int]", "Any",
    ]  # fmt: skip
    faulty = {lines[int(line.split(":")[1]) - 1].strip() for line in said if ": error:" in line}
    assert faulty == {line.strip() for line in lines[lines.index("async def bad() -> None:") + 1 :] if line.strip()}


async def test_a_record_has_values_of_the_declared_types(app: App) -> None:
    async def work(ctx: JobContext[Aliased]) -> Address:
        await ctx.update_progress({"done": 1})
        await ctx.checkpoint(["a"])
        return Address(email="b")

    queue = app.queue("q", [work], keep_completed=True)
    job = await queue.add(work, Aliased(userId=5), metadata={"actor": "me"})
    await drained(app)
    record = (await job.refresh()).record

    assert record is not None
    assert (record.data, record.result) == (Aliased(userId=5), Address(email="b"))
    assert (record.metadata, record.progress, record.checkpoint) == ({"actor": "me"}, {"done": 1}, ["a"])


async def test_a_record_has_the_stored_text_where_that_is_not_of_the_type(app: App) -> None:
    async def work(ctx: JobContext[Aliased]) -> int:
        return 1

    queue = app.queue("q", [work])
    await app.store.add("q", [NewJob(name="work", data='{"userId":"x"}', id="odd")])
    job = await queue.job("odd")

    assert job is not None
    assert job.record is not None
    assert (job.record.data, job.data) == ('{"userId":"x"}', '{"userId":"x"}')
