"""Paths and queries in one form each, before anything is routed by them."""

from urllib.parse import parse_qsl, quote, unquote_to_bytes

from toril.web.problems import Problem

__all__ = ["canonical", "plain", "query"]

_AS_THEY_ARE = "-._~!$&'()*+,;=:@"
_PARAMETERS = 100


def canonical(raw: bytes) -> str:
    """A path with each part escaped in the one way: a `/` within an id stays apart from those between parts."""
    parts = []
    for part in raw.split(b"/"):
        try:
            text = unquote_to_bytes(part).decode("utf-8")
        except UnicodeDecodeError:
            raise Problem(400, "bad_path", "a path is UTF-8") from None
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
            raise Problem(400, "bad_path", "a path has no control characters")
        if text in (".", ".."):
            raise Problem(404, "not_found", "there is nothing here")
        parts.append(quote(text, safe=_AS_THEY_ARE))
    return "/".join(parts)


def plain(part: str) -> str:
    """A part of a path, as it was meant."""
    return unquote_to_bytes(part).decode("utf-8")


def query(raw: bytes) -> dict[str, str]:
    """The parameters of a query, each given once."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS)
    except ValueError:
        raise Problem(400, "bad_query", f"a query has at most {_PARAMETERS} parameters, in UTF-8") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name in found if sum(each == name for each, _ in pairs) > 1)
        raise Problem(400, "bad_query", "a parameter is given once", field=twice[:80])
    return found
