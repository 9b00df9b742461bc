"""The figures in the docs are those of the runs that were kept."""

import pytest
from tools.proofs import KINDS, PAGE, kept, rendered, shown

DOCUMENT = {
    "when": "2026-11-16", "commit": "abc1234", "minutes": 12.4, "machine": "2 cores", "note": "quiet",
    "rows": [
        {"id": "T1", "what": "simulated jobs", "found": "150,000", "release": "10,000,000", "broken": False},
        {"id": "T5", "what": "power cuts", "found": "not run", "release": "400", "broken": False},
    ],
    "faults": {"kill": 12345},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_shows_what_was_kept(kind: str) -> None:
    page = PAGE.read_text("utf-8")

    assert f"<!-- {kind}: begin -->" in page
    assert shown(page, kind, kept(kind)) == page, "run  python -m tools.proofs"


def test_a_figure_that_was_never_published_is_not_made_up() -> None:
    page = shown("<!-- planted: begin -->\nall were found\n<!-- planted: end -->", "planted", None)

    assert page == "<!-- planted: begin -->\nNo figure has been published yet.\n<!-- planted: end -->"


def test_no_promise_was_broken_at_the_gate() -> None:
    document = kept("gate")

    assert document is not None
    assert [row["id"] for row in document["rows"] if row["broken"]] == []
    assert not document.get("code"), "a test failed"


def test_what_was_not_run_is_left_out() -> None:
    table = rendered(DOCUMENT)

    assert "2026-11-16, commit abc1234: 12 minutes on 2 cores; quiet." in table
    assert "| T1 | simulated jobs | 150,000 | 10,000,000 |" in table
    assert "T5" not in table
    assert "kill 12,345" in table
    assert "commit abc1234: 1 minute on" in rendered({**DOCUMENT, "minutes": 0.9})


def test_a_table_replaces_the_one_before_it() -> None:
    page = "a\n<!-- gate: begin -->\nold\n<!-- gate: end -->\nb\n"

    once = shown(page, "gate", DOCUMENT)

    assert "old" not in once
    assert once.startswith("a\n<!-- gate: begin -->\n")
    assert once.endswith("\n<!-- gate: end -->\nb\n")
    assert shown(once, "gate", DOCUMENT) == once


def test_a_remark_goes_with_the_run_that_it_is_about() -> None:
    page = "<!-- gate: begin -->\n<!-- gate: end -->\n"

    remarked = shown(page, "gate", {**DOCUMENT, "remark": "One part was left out."})

    assert remarked.endswith("\n\nOne part was left out.\n<!-- gate: end -->\n")
    assert shown(remarked, "gate", DOCUMENT) == shown(page, "gate", DOCUMENT)


def test_a_run_that_failed_says_so() -> None:
    assert "The run exited with code 1: a promise was broken or a test failed." in rendered({**DOCUMENT, "code": 1})
    assert "exited with" not in rendered({**DOCUMENT, "code": 0})


def test_a_run_names_its_blind_seeds_and_the_bugs_that_they_missed() -> None:
    table = rendered({**DOCUMENT, "bases": ["2026-11-17"], "missed": ["no_letter", "redis: anyone settles"]})

    assert "from `TORIL_BLIND=2026-11-17`." in table
    assert "Not found by the blind search: `no_letter`, `redis: anyone settles`." in table
    assert "blind" not in rendered({**DOCUMENT, "bases": [], "missed": []})


def test_a_run_names_the_files_of_the_seeds_that_it_kept() -> None:
    table = rendered({**DOCUMENT, "seeds": ["agenda-redis-7-abc123.json", "fleet-memory-1-def456.json"]})

    assert "kept in `tests/seeds/`: `agenda-redis-7-abc123.json`, `fleet-memory-1-def456.json`." in table
    assert "tests/seeds/" not in rendered(DOCUMENT)
