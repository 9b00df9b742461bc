"""What a PostgreSQL URL may say."""

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from toril.engines.postgres.url import parse
from toril.errors import InvalidOption


def test_what_is_not_the_stores_is_for_libpq() -> None:
    address = parse("postgresql://ann:pw@db:6432/shop?sslmode=require&schema=jobs&prepare=never")

    said = conninfo_to_dict(address.conninfo)
    assert (said["host"], said["port"], said["user"], said["dbname"], said["sslmode"]) == (
        "db", "6432", "ann", "shop", "require",
    )  # fmt: skip
    assert (address.schema, address.prepare) == ("jobs", "never")


def test_a_short_scheme_and_nothing_else_are_enough() -> None:
    address = parse("postgres://")

    assert (address.schema, address.prepare) == ("toril", "auto")
    assert "host" not in conninfo_to_dict(address.conninfo)


def test_a_dead_server_is_noticed_unless_the_url_says_otherwise() -> None:
    assert conninfo_to_dict(parse("postgresql://db/x").conninfo)["tcp_user_timeout"] == "30000"
    assert conninfo_to_dict(parse("postgresql://db/x?tcp_user_timeout=9").conninfo)["tcp_user_timeout"] == "9"


def test_the_environment_and_a_service_file_say_what_the_url_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "services").write_text("[shop]\nhost=db.example\nconnect_timeout=3\n", "utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))

    assert conninfo_to_dict(parse("postgresql://").conninfo)["connect_timeout"] == "10"
    assert "connect_timeout" not in conninfo_to_dict(parse("postgresql://?service=shop").conninfo)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    assert "connect_timeout" not in conninfo_to_dict(parse("postgresql://").conninfo)


def test_a_message_never_shows_the_password() -> None:
    assert "secret" not in parse("postgresql://ann:secret@db/shop").name
    with pytest.raises(InvalidOption) as refused:
        parse("postgresql://ann:sec%ret@db/shop")
    assert "sec%ret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/shop?schema=Jobs", "postgresql://db/shop?schema=pg_jobs", "postgresql://db/shop?schema=",
        "postgresql://db/shop?schema=a-b", f"postgresql://db/shop?schema={'a' * 49}",
        "postgresql://db/shop?prepare=maybe", "postgresql://db/shop?colour=red", "postgresql://[db/shop", "postgresql://a:b#c@db/shop",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        parse(url)
