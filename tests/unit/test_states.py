"""The table of states is closed: a job never gets anywhere from which it cannot go on."""

import pytest

from toril.model.states import FINISHED, NOT_STARTED, TRANSITIONS, State, Verb


def reachable(start: State | None) -> set[State | None]:
    """Every state that a job can come to from here."""
    seen: set[State | None] = set()
    open_ends = {start}
    while open_ends:
        here = open_ends.pop()
        for (source, _), targets in TRANSITIONS.items():
            if source == here:
                open_ends |= targets - seen
                seen |= targets
    return seen


def verbs_of(state: State | None) -> set[Verb]:
    return {verb for source, verb in TRANSITIONS if source == state}


def test_every_move_leads_somewhere_known() -> None:
    known = {None, *State}

    assert all(targets and targets <= known for targets in TRANSITIONS.values())
    assert {source for source, _ in TRANSITIONS} <= known


def test_every_state_can_be_reached() -> None:
    assert reachable(None) == {None, *State}


@pytest.mark.parametrize("state", sorted(set(State) - FINISHED))
def test_a_job_that_has_not_ended_can_end_both_ways(state: State) -> None:
    assert reachable(state) >= FINISHED


@pytest.mark.parametrize("state", sorted(State))
def test_every_job_can_leave_the_store(state: State) -> None:
    assert None in reachable(state)


def test_only_an_add_brings_a_job_into_the_store() -> None:
    assert verbs_of(None) == {Verb.ADD}
    assert {source for source, verb in TRANSITIONS if verb is Verb.ADD} == {None}


def test_a_new_job_has_not_started() -> None:
    assert TRANSITIONS[None, Verb.ADD] == NOT_STARTED | {State.WAITING_CHILDREN}


def test_only_a_claim_starts_a_job() -> None:
    assert {
        verb for (source, verb), targets in TRANSITIONS.items() if State.ACTIVE in targets and source != State.ACTIVE
    } == {Verb.CLAIM}


def test_only_a_running_job_completes() -> None:
    assert {source for (source, _), targets in TRANSITIONS.items() if State.COMPLETED in targets} == {State.ACTIVE}


def test_a_finished_job_moves_only_by_hand() -> None:
    for state in FINISHED:
        assert verbs_of(state) == {Verb.RETRY_BY_HAND, Verb.REWIND, Verb.REMOVE, Verb.TRIM}


def test_a_running_job_is_neither_removed_nor_moved_in_the_line() -> None:
    assert not verbs_of(State.ACTIVE) & {Verb.REMOVE, Verb.TRIM, Verb.PROMOTE, Verb.CHANGE_PRIORITY, Verb.CHANGE_DELAY}


@pytest.mark.parametrize("verb", Verb)
def test_every_verb_has_a_move(verb: Verb) -> None:
    assert any(each is verb for _, each in TRANSITIONS)


def test_no_state_is_both_before_the_start_and_after_the_end() -> None:
    assert not FINISHED & NOT_STARTED
    assert FINISHED | NOT_STARTED | {State.WAITING_CHILDREN, State.ACTIVE} == set(State)
