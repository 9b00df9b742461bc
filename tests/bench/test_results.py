"""Medians, ratios and targets; and the pages say what the kept results say."""

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from bench.cases import CASES, Sample
from bench.charts import bars, draw, lines
from bench.installing import ROOT, versions
from bench.publish import KEPT_RESULTS, PAGES, filled
from bench.results import Results, Spread
from bench.roster import PEERS
from bench.tables import TABLES, number, whole
from bench.targets import TARGETS, best_rate, ratio


def results(*found: tuple[str, str, dict[str, float]]) -> Results:
    samples = [Sample(case, peer, turn, figures) for turn, (case, peer, figures) in enumerate(found, 1)]
    return Results("a machine", "2026-01-01", 3, 1.0, {"Toril": "toril 1"}, samples)


def drained(peer: str, *rates: float, case: str = "drain-100") -> list[tuple[str, str, dict[str, float]]]:
    return [(case, peer, {"rate": rate}) for rate in rates]


def test_a_spread_is_the_median_and_its_range() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_a_ratio_needs_both_sides() -> None:
    assert ratio(6.0, 3.0) == 2.0
    assert (ratio(None, 3.0), ratio(6.0, None), ratio(6.0, 0.0)) == (None, None, None)


def test_a_peer_is_taken_at_the_slots_that_suit_it() -> None:
    found = results(*drained("huey", 10, 20, 30, case="drain-1"), *drained("huey", 5), *drained("saq", 7))

    assert best_rate(found, ["huey", "saq"]) == 20
    assert best_rate(found, ["rq"]) is None


def test_a_target_is_met_or_not_or_not_measured() -> None:
    target = next(target for target in TARGETS if target.against == "BullMQ (Node)")

    assert target.met(results(*drained("toril", 170, 171, 900), *drained("bullmq-node", 100, 1, 102))) is True
    assert target.met(results(*drained("toril", 169), *drained("bullmq-node", 100))) is False
    assert target.met(results(*drained("toril", 169))) is None


def test_growth_is_compared_round_for_round() -> None:
    found = results()
    rates = {"1k": (100.0, 50.0, 80.0), "1m": (90.0, 48.0, 40.0)}  # the machine was slow in the second round
    for size, of_rounds in rates.items():
        for turn, rate in enumerate(of_rounds, 1):
            found.samples.append(Sample(f"grow-waiting-{size}", "toril", turn, {"rate": rate}))

    assert found.compared("grow-waiting-1m", "grow-waiting-1k", "toril") == Spread(0.9, 0.5, 0.96)
    assert found.compared("grow-waiting-1m", "grow-waiting-1k", "huey") is None
    target = next(target for target in TARGETS if target.what == "no-op jobs with 1,000,000 waiting")
    assert target.met(found) is True
    assert "| 1,000,000 waiting | 48.0 (40.0 to 90.0) | 0.90 (0.50 to 0.96) |" in TABLES["growth"](found)


def test_a_failure_is_told_and_has_no_figures() -> None:
    found = results(*drained("toril", 2))
    found.samples.append(Sample("drain-100", "huey", 1, {}, "could not be installed"))

    assert "Huey, worked off, 100 at once: could not be installed" in TABLES["failures"](found)
    assert "| Huey | - |" in TABLES["drain"](found)


def test_results_survive_being_written(tmp_path: Path) -> None:
    found = results(*drained("toril", 1.5, 2.5), *drained("huey", 1))
    found.write(tmp_path / "results.json")

    assert Results.read(tmp_path / "results.json") == found


def test_tables_and_charts_are_made_of_whatever_there_is(tmp_path: Path) -> None:
    every = [(case, peer, {"rate": 5.0, "p50": 1.0, "p95": 1.0, "p99": 1.0}) for case in CASES for peer in PEERS]

    for found in (results(), results(*drained("toril", 2)), results(*every)):
        assert "no-op jobs, 100 at once" in whole(found)
        for chart in draw(found, tmp_path):
            Xml.parse(chart)


def test_charts_are_drawings_with_what_they_show() -> None:
    bar = Xml.fromstring(bars("a < b", [("one", 10.0, "red"), ("two", 5.0, "blue")]))
    line = Xml.fromstring(lines("rates", [10, 1000], {"one": [1.0, 2.0]}))

    widths = [float(rect.attrib["width"]) for rect in bar.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert "a < b" in [text.text for text in bar.iter("{http://www.w3.org/2000/svg}text")]
    assert len(list(line.iter("{http://www.w3.org/2000/svg}polyline"))) == 1


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (12345.6, "12,346"), (12.34, "12.3"), (1.234, "1.23")])
def test_numbers_have_the_digits_that_they_can_bear(value: float | None, text: str) -> None:
    assert number(value) == text


def test_only_what_is_between_the_marks_is_rewritten() -> None:
    page = "before\n<!-- bench:about -->\nold\n<!-- /bench -->\nafter <!-- bench --> all\n"

    made = filled(page, results())

    assert made.startswith("before\n<!-- bench:about -->\n2026-01-01; a machine;")
    assert made.endswith("\n<!-- /bench -->\nafter <!-- bench --> all\n")
    assert "old" not in made
    assert filled(made, results()) == made


def test_the_pages_say_what_the_kept_results_say() -> None:
    kept = Results.read(KEPT_RESULTS)

    for page in PAGES:
        text = page.read_text("utf-8")
        assert "<!-- bench:" in text
        assert filled(text, kept) == text, "run  python -m bench.publish"


@pytest.mark.parametrize("peer", PEERS.values(), ids=lambda peer: peer.name)
def test_every_peer_is_pinned_and_has_its_adapter(peer: object) -> None:
    assert isinstance(peer, type(PEERS["toril"]))
    folder = ROOT / "bench" / "peers"
    file = folder / "node" / peer.adapter if peer.language == "node" else folder / f"{peer.adapter}.py"

    assert file.is_file()
    if peer.needs is not None:
        pins = (folder / "requirements" / f"{peer.needs}.txt").read_text("utf-8").split()
        assert all("==" in pin for pin in pins)
    assert any(digit.isdigit() for digit in versions(peer))
