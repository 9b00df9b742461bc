"""The audit log: what was changed from outside, the last first."""

import pytest

from toril.errors import InvalidOption
from toril.model import AuditEntry
from toril.store.engine import Store


def entry(number: int) -> AuditEntry:
    return AuditEntry(who="ada", address="::1", action="pause queue", target=f"q{number}", detail="{}", ended="done")


async def test_entries_are_read_from_the_last_to_the_first(engine: Store) -> None:
    for number in range(5):
        await engine.audit.append(entry(number))

    seen: list[AuditEntry] = []
    cursor = None
    while True:
        page = await engine.audit.page(cursor=cursor, limit=2)
        seen += page.items
        cursor = page.cursor
        if cursor is None:
            break

    assert [each.target for each in seen] == ["q4", "q3", "q2", "q1", "q0"]
    assert all(each.at > 0 for each in seen)


async def test_an_entry_that_comes_meanwhile_is_not_shown_twice_nor_hides_one(engine: Store) -> None:
    for number in range(3):
        await engine.audit.append(entry(number))
    first = await engine.audit.page(limit=2)
    await engine.audit.append(entry(3))
    rest = await engine.audit.page(cursor=first.cursor, limit=2)

    assert [each.target for each in (*first, *rest)] == ["q2", "q1", "q0"]


@pytest.mark.parametrize("cursor", ["", "x", "1", "-1-0", "1-0; drop", "9" * 30 + "-0"])
async def test_a_cursor_that_was_not_given_out_is_refused(engine: Store, cursor: str) -> None:
    with pytest.raises(InvalidOption, match="cursor"):
        await engine.audit.page(cursor=cursor)
