"""The scorecard on the page is the one that was measured."""

from bench.scorecard.page import PAGE, kept, with_table


def test_the_page_shows_the_figures_that_were_kept() -> None:
    page = PAGE.read_text("utf-8")

    assert with_table(page, kept()) == page, "run  python -m bench.scorecard.page"


def test_all_peers_met_the_same_faults() -> None:
    runs = [told["runs"] for told in kept()["peers"].values()]

    assert len(runs) >= 3
    assert len({tuple(run["faults"] for run in each) for each in runs}) == 1
    assert all(run["lost"] == 0 for run in kept()["peers"]["Toril"]["runs"])
