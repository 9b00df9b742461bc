"""PostgreSQL URLs: what they say of the server is libpq's, the rest is the store's."""

import os
import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from toril.errors import InvalidOption, preview
from toril.store.engine import redacted

__all__ = ["DEFAULT_SCHEMA", "PostgresAddress", "parse"]

DEFAULT_SCHEMA: Final = "toril"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # as it is, without quotes; with room for what is added to it
# Where the URL does not say otherwise. A server that is gone without a word is noticed within half a minute.
_USUAL: Final = {
    "fallback_application_name": "toril",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_CONNECT_TIMEOUT: Final = "10"  # seconds, unless the environment or the service file may say otherwise
_OWN: Final = {"schema", "prepare"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A parsed URL."""

    conninfo: str  # as libpq takes it
    name: str  # as messages show it
    schema: str = DEFAULT_SCHEMA
    prepare: Literal["auto", "never"] = "auto"


def parse(url: str) -> PostgresAddress:
    """`postgresql://user:password@host:5432/database`, with libpq's own options, `?schema=toril` and
    `?prepare=auto|never`."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise InvalidOption(f"invalid URL {redacted(url)!r}: {error}") from None
    if parts.fragment:
        raise InvalidOption(f"{redacted(url)!r} contains a # that must be escaped in a URL as %23")
    own = {name: value for name, value in given if name in _OWN}
    schema, prepare = own.get("schema", DEFAULT_SCHEMA), own.get("prepare", "auto")
    check_schema(schema)
    if prepare not in {"auto", "never"}:
        raise InvalidOption(f"prepare must be 'auto' or 'never', not {preview(prepare)}")
    rest = "&".join(f"{quote(name)}={quote(value)}" for name, value in given if name not in _OWN)
    try:
        said = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}{rest and '?'}{rest}")
    except psycopg.Error as error:
        complaint = str(error).strip().replace(parts.password or "\0", "***")
        raise InvalidOption(f"invalid URL {redacted(url)!r}: {complaint}") from None
    usual = dict(_USUAL)
    if "service" not in said and not os.environ.keys() & {"PGSERVICE", "PGCONNECT_TIMEOUT"}:
        usual["connect_timeout"] = _CONNECT_TIMEOUT
    return PostgresAddress(
        conninfo=make_conninfo("", **{**usual, **said, "client_encoding": "UTF8"}),
        name=redacted(url),
        schema=schema,
        prepare="never" if prepare == "never" else "auto",
    )


def check_schema(name: str) -> str:
    """Refuse a name that would have to be quoted, or that is PostgreSQL's own."""
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise InvalidOption(
            f"a schema must have up to 48 small letters, digits and underscores, and not begin with pg_; got "
            f"{preview(name)}"
        )
    return name
