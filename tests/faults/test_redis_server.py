"""What a server may be, hold and refuse: full, evicting, protected, of the wrong types."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import add, claim, claim_one, settle
from tests.servers import RedisServer
from toril import App, Dedup, JobContext, PermanentError, RateLimit
from toril.engines.redis import RedisEngine, connect
from toril.engines.redis.layout import KEYS
from toril.errors import EngineFull, EngineUnavailable, EngineUnusable
from toril.model import KEEP_ALL, Claim, Completed, Failed, Failure, JobOptions, NewJob, Settlement, Verdict


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
async def engine(server: RedisServer) -> AsyncIterator[RedisEngine]:
    engine = connect(server.url)
    await engine.open()
    yield engine
    await engine.close()


@pytest.mark.covers("F63")
async def test_a_full_server_takes_no_jobs_but_lets_them_end(server: RedisServer, engine: RedisEngine) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(100)))
    taken = (await claim(engine, 100)).jobs
    server.tell("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(EngineFull, match="is full"):
        await add(engine, NewJob(name="n"))
    batch = [Settlement(job.lease, Completed("1")) for job in taken]
    answer = await engine.exchange("q", batch, Claim(want=0, token="t", lease=1000, worker="w"))

    assert set(answer.verdicts) == {Verdict.OK}
    server.tell("CONFIG", "SET", "maxmemory", "0")
    assert (await add(engine, NewJob(name="n")))[0].id == "101"


@pytest.mark.covers("R171")
async def test_every_key_begins_with_the_prefix_and_the_queue(server: RedisServer) -> None:
    app = App(server.url, prefix="{mine}")

    async def work(ctx: JobContext[bool]) -> str:
        if ctx.data:
            raise PermanentError("no")
        return "done"

    queue = app.queue("q", {"work": work}, rate_limit=RateLimit(100, per=1), keep_completed=1)
    queue.schedule("nightly", "work", data=False, cron="30 2 * * *")
    async with app:
        await queue.add_many([("work", False, {"result_ttl": 60, "group": "g"}), ("work", True, {"dedup": Dedup("k")})])
        await app.run(burst=True)
        keys = server.lines("KEYS", "*")[1::2]  # each after its length

    assert {key for key in keys if not key.startswith("{mine}:")} == set()
    assert {key.split(":")[1] for key in keys} >= {"q", "dead-letter"}


@pytest.mark.covers("F64")
async def test_a_server_that_throws_keys_away_is_refused(server: RedisServer) -> None:
    server.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

    with pytest.raises(EngineUnusable, match=r"allkeys-lru.*to noeviction, or add .allow_eviction=1"):
        await connect(server.url).open()

    allowed = connect(server.url + "?allow_eviction=1")
    await allowed.open()
    await allowed.close()


@pytest.mark.covers("F72")
async def test_a_password_is_asked_for_and_never_shown(server: RedisServer) -> None:
    server.tell("CONFIG", "SET", "requirepass", "hunter2")
    place = server.url.removeprefix("redis://")

    for url in (server.url, f"redis://:wrong-secret@{place}"):
        with pytest.raises(EngineUnavailable, match="denied access") as refused:
            await connect(url).open()
        assert "secret" not in str(refused.value)

    engine = connect(f"redis://:hunter2@{place}")
    await engine.open()
    assert "hunter2" not in repr(engine)
    await engine.close()


async def test_a_user_with_rights_to_its_prefix_can_work(server: RedisServer) -> None:
    assert (
        server.tell("ACL", "SETUSER", "worker", "on", ">pw", "~bull:*", "resetchannels", "&bull:*", "+@all", "-@admin")
        == b"+OK"
    )
    engine = connect(server.url.replace("redis://", "redis://worker:pw@"))
    await engine.open()

    await add(engine, NewJob(name="n"))
    assert await settle(engine, (await claim_one(engine)).lease) is Verdict.OK
    await engine.close()


async def test_a_socket_file_is_a_place_too() -> None:
    folder = tempfile.mkdtemp(prefix="toril-socket-")
    server = RedisServer("--unixsocket", f"{folder}/redis.sock", "--save", "").start()
    engine = connect(f"unix://{folder}/redis.sock")
    try:
        await engine.open()
        await add(engine, NewJob(name="n"))
        assert await settle(engine, (await claim_one(engine)).lease) is Verdict.OK
    finally:
        await engine.close()
        server.stop()
        shutil.rmtree(folder)


async def test_a_server_that_is_not_there_is_named(server: RedisServer) -> None:
    server.kill()

    with pytest.raises(EngineUnavailable, match=f"127.0.0.1:{server.port}"):
        await RedisEngine.from_url(server.url + "?timeout=0.2").open()


@pytest.mark.covers("F67", "F65")
async def test_an_id_without_a_job_is_dropped_and_never_run(server: RedisServer, engine: RedisEngine) -> None:
    await add(engine, NewJob(name="a"))
    server.tell("RPUSH", "bull:q:wait", "ghost")
    server.tell("ZADD", "bull:q:prioritized", "1", "ghost2")

    taken = await claim(engine)

    assert [job.name for job in taken.jobs] == ["a"]
    assert (await engine.counts("q")).waiting == 0
    assert server.tell("EXISTS", "bull:q:ghost", "bull:q:ghost2") == b":0"


WRITTEN = [
    "wait", "active", "prioritized", "delayed", "completed", "failed", "marker", "events", "meta", "toril", "deadlines",
    "suspects", "pc", "runs_completed", "runs_failed", "metrics_completed", "metrics_failed", "ages",
    "results", "results_till",
]  # fmt: skip


@pytest.mark.covers("F66")
@pytest.mark.parametrize("name", WRITTEN)
async def test_a_key_of_the_wrong_type_changes_nothing(server: RedisServer, engine: RedisEngine, name: str) -> None:
    await add(
        engine, *(NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)) for _ in range(3))
    )
    await add(engine, NewJob(name="d", delay=50_000), NewJob(name="p", priority=1))
    good, bad = (await claim(engine, 2)).jobs
    batch = [Settlement(good.lease, Completed("1")), Settlement(bad.lease, Failed(Failure("x")))]
    key = f"bull:q:{KEYS[name]}"
    server.tell("DEL", key)
    server.tell(*(("HSET", key, "a", "b") if name in {"pc", "events"} else ("SET", key, "another program's")))
    before = await dump(engine)

    wanted = Claim(want=5, token="t", lease=1000, worker="w")
    with pytest.raises(EngineUnusable, match=r"another program uses this prefix|WRONGTYPE"):
        await engine.exchange("q", batch, wanted)

    assert await dump(engine) == before


@pytest.mark.covers("F81")
@pytest.mark.parametrize(
    "data", ["[]", '{"a":{},"b":[]}', "12345678901234567890", '"a/b\\u2028"', "[" * 1500 + "]" * 1500]
)
async def test_no_script_rewrites_what_users_wrote(server: RedisServer, engine: RedisEngine, data: str) -> None:
    await add(engine, NewJob(name="n", data=data, options=JobOptions(keep_completed=KEEP_ALL)))
    held = await claim_one(engine)

    await settle(engine, held.lease, Completed(data))

    (found,) = await engine.jobs("q", ["1"])
    assert found is not None
    assert held.data == found.data == found.result == data


async def test_options_of_any_shape_are_read(server: RedisServer, engine: RedisEngine) -> None:
    odd = [
        "[]", '{"attempts":0}', '{"attempts":"x","backoff":5}', '{"removeOnComplete":{"age":1.5}}',
        '{"removeOnFail":-1,"removeOnComplete":[]}', '{"backoff":{"type":"custom"},"kl":null}', '{"toril":7}',
    ]  # fmt: skip
    for number, options in enumerate(odd):
        fields = [
            "name",
            "n",
            "data",
            "not json either",
            "opts",
            options,
            "timestamp",
            "1.5",
            "delay",
            "1.5",
            "priority",
            "0",
        ]
        server.tell("HSET", f"bull:q:odd{number}", *fields)
        server.tell("LPUSH", "bull:q:wait", f"odd{number}")

    taken = (await claim(engine, 20)).jobs
    verdicts = [await settle(engine, job.lease, Completed("1")) for job in taken]

    assert [job.lease.id for job in taken] == [f"odd{number}" for number in range(len(odd))]
    assert set(verdicts) == {Verdict.OK}
    assert {job.max_attempts for job in taken} == {1}
    assert all(found is not None for found in await engine.jobs("q", ["odd0", "odd3"]))


@pytest.mark.parametrize("waited", [0.5, -0.5, 1e300, "nan"])
async def test_a_delay_from_elsewhere_that_is_no_whole_number_stops_nobody(
    server: RedisServer, engine: RedisEngine, waited: float | str
) -> None:
    job_id = (await add(engine, NewJob(name="n")))[0].id
    lease = (await claim_one(engine)).lease
    (record,) = await engine.jobs("q", [job_id])
    assert record is not None
    assert record.started_at is not None
    delay = f'"{waited}"' if isinstance(waited, str) else repr(record.started_at - record.added_at - waited)
    server.tell("HSET", f"bull:q:{job_id}", "opts", f'{{"removeOnComplete": true, "delay": {delay}}}')

    assert await settle(engine, lease, Completed("1")) is Verdict.OK

    assert server.tell("EXISTS", f"bull:q:{job_id}") == b":0"
