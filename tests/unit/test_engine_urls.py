"""`connect`: which store a URL means, and what a wrong one is told. Rows B61 and B62, as far as the URL goes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toril.engines.postgres import PostgresEngine
from toril.engines.sqlite import SqliteEngine
from toril.errors import EngineUnusable, InvalidOption, TorilError
from toril.store import engine
from toril.store.engine import Engine, Inspector, connect, redacted


@pytest.mark.parametrize("url", ["memory://", "sqlite:///jobs.db", "sqlite:////tmp/jobs.db?synchronous=normal"])
def test_a_url_gives_a_store_that_is_not_yet_open(url: str) -> None:
    store = connect(url)

    assert isinstance(store, SqliteEngine)
    assert isinstance(store, Engine)
    assert isinstance(store, Inspector)
    assert store.in_memory == (url == "memory://")


def test_nothing_is_made_before_the_store_is_opened(tmp_path: Path) -> None:
    connect(f"sqlite:///{tmp_path / 'jobs.db'}")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.covers("B61")
@pytest.mark.parametrize("url", ["", "jobs.db", "/tmp/jobs.db", "sqlite:jobs.db", "sqlite", "localhost:6379"])
def test_a_url_without_a_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="has no scheme; write it as in sqlite:///jobs"):
        connect(url)


@pytest.mark.covers("B61")
@pytest.mark.parametrize("url", ["http://localhost/", "://", "SQLITE:///jobs.db", " sqlite:///jobs.db", "mysql://h/d"])
def test_a_url_of_another_kind_is_told_which_there_are(url: str) -> None:
    with pytest.raises(InvalidOption, match=r"unknown store URL .*; expected one of sqlite://, "):
        connect(url)


@pytest.mark.covers("B61", "B62")
@pytest.mark.parametrize(("url", "why"), [
    ("sqlite://", "needs three slashes, as in sqlite:///jobs.db"),
    ("sqlite://jobs.db", "needs three slashes, as in sqlite:///jobs.db"),
    ("sqlite://host/jobs.db", "needs three slashes, as in sqlite:///jobs.db"),
    ("sqlite:///", "does not name a file"),
    ("sqlite:///folder/", "does not name a file"),
    ("sqlite:///:memory:", "or memory:// for a store in memory"),
    ("sqlite:///file:jobs.db?mode=ro", "does not name a file"),
    ("sqlite:///a%00b", "does not name a file"),
    ("sqlite:///jobs.db?mode=ro", "; the options are synchronous=full"),
    ("sqlite:///jobs.db?synchronous=off", "unknown option 'synchronous=off'"),
    ("sqlite:///jobs.db?network", "unknown option 'network='"),
    ("memory://name", "memory:// takes no name, because it cannot be shared"),
    ("memory://?synchronous=full", "memory:// takes no name"),
])  # fmt: skip
def test_a_url_that_names_no_file_is_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        connect(url)

    assert why in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite:///" + "x" * 10_000 + "/", "sqlite:///jobs.db?a=\x1b[31m" + "x" * 10_000])
def test_a_message_shows_a_bounded_part_of_the_url(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        connect(url)

    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.covers("B61")
@pytest.mark.parametrize("url", [
    "other://:hunter2@localhost",
    "other://user:hunter2@localhost:99999/-1",
    "other://user:a@hunter2@localhost/0",
    "other://user:hunter2@[::1]:6379/0",
    "other://user:hunter2@::1:6379",
    "other://user:hunter2@[bad",
    pytest.param("user:hunter2@localhost:6379"),
    pytest.param("other://user:hunter2/more@localhost"),
    pytest.param("other://user:hunter2#more@localhost"),
    pytest.param("other://user:hunter2?more@localhost"),
    pytest.param("other://localhost?password=hunter2"),
])  # fmt: skip
def test_no_message_shows_a_password(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        connect(url)

    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in redacted(url)


@pytest.mark.covers("B61")
@pytest.mark.parametrize(
    "url", ["other://[::1", "other://::1:6379", "other://[1.2.3.4]/", "other://h:port/db", "x://[]"]
)
def test_an_odd_address_never_crashes_the_message(url: str) -> None:
    with pytest.raises(InvalidOption, match="unknown store URL"):
        connect(url)


@pytest.mark.parametrize("url", ["sqlite://[::1/jobs.db", "memory://[", None, 5, b"sqlite:///jobs.db"])
def test_whatever_cannot_be_read_as_a_url_is_an_invalid_option(url: str) -> None:
    with pytest.raises(InvalidOption):
        connect(url)


@pytest.mark.parametrize(("url", "text"), [
    ("redis://localhost:6379/0", "redis://localhost:6379/0"),
    ("redis://user:secret@localhost:6379/0", "redis://***@localhost:6379/0"),
    ("", ""),
    pytest.param("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ("x" * 300, "x" * 200),
])  # fmt: skip
def test_a_url_is_shown_without_who_and_password(url: str, text: str) -> None:
    assert redacted(url) == text


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_shown_as_a_url(text: str) -> None:
    assert len(redacted(text)) <= 200
    assert len(redacted(f"redis://{text}")) <= 200


@pytest.mark.covers("B61", "X10")
def test_a_missing_package_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "store_with_a_need.py").write_text("import package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(engine, "_SCHEMES", {"redis": ("store_with_a_need", "redis")})

    with pytest.raises(EngineUnusable) as caught:
        connect("redis://user:hunter2@localhost")

    assert "redis:// needs the package 'package_that_is_not_there'" in str(caught.value)
    assert "pip install 'toril[redis]'" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.covers("B61", "X10")
def test_a_missing_libpq_is_told_what_brings_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "store_without_libpq.py").write_text("raise ImportError('no pq wrapper available')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(engine, "_SCHEMES", {"postgresql": ("store_without_libpq", "postgres")})

    with pytest.raises(EngineUnusable, match=r"pip install 'psycopg\[binary\]' \(no pq wrapper available\)"):
        connect("postgresql://ann:hunter2@localhost/shop")


def test_a_durability_that_postgresql_has_itself_is_refused() -> None:
    with pytest.raises(InvalidOption, match="set synchronous_standby_names on the server"):
        connect("postgresql://localhost/shop", durability="replicated")


@pytest.mark.parametrize("url", ["postgresql://ann:hunter2@localhost/shop", "postgres:///shop?schema=jobs"])
def test_a_url_of_postgresql_gives_a_store_that_is_not_yet_open(url: str) -> None:
    store = connect(url, dead_letter_queue="dead")

    assert isinstance(store, PostgresEngine)
    assert isinstance(store, Engine)
    assert isinstance(store, Inspector)
    assert not store.in_memory
    assert store.dead_letters.queue == "dead"
    assert "hunter2" not in repr(store)


def test_a_module_of_ours_that_is_missing_is_no_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SCHEMES", {"redis": ("toril.engines.not_there", "redis")})

    with pytest.raises(ModuleNotFoundError, match=r"toril\.engines\.not_there"):
        connect("redis://localhost")


@settings(deadline=None)
@given(st.text(), st.sampled_from(["sqlite:///", "sqlite://", "memory://", ""]))
def test_any_url_gives_a_store_or_one_of_our_errors(text: str, kind: str) -> None:
    try:
        store = connect(kind + text)
    except TorilError:
        return

    assert isinstance(store, SqliteEngine)
