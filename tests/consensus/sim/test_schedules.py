"""Simulated groups keep every promise whatever goes wrong, work again when it is over, and defects are found."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.consensus.linearizable import Linearizable, Violation, check
from tests.consensus.mutants import core_of, mutants
from tests.consensus.sim.faults import Faults
from tests.consensus.sim.foreign import Child, missing, mixed
from tests.consensus.sim.found import COVERED, FOUND
from tests.consensus.sim.healing import ELECTIONS, run_schedule
from tests.consensus.sim.histories import History
from tests.consensus.sim.many import Sum, catch, run_many, shrink
from tests.consensus.sim.schedule import NOISE, STORIES, make_schedule
from tests.consensus.sim.world import World
from tests.seeds import seeds

SCHEDULES = seeds(20_000)
MIXED = seeds(500)
HISTORIES = seeds(3000)
WORKERS = 2
MOST = 5000  # schedules until a defect has been found


def again(seed: int) -> str:
    return f"python -m tests.consensus.sim --from {seed}"


@pytest.mark.series
def test_whatever_goes_wrong_every_promise_holds() -> None:
    total = Sum()
    for block in run_many(0, SCHEDULES, WORKERS):
        assert block.problems == [], again(block.problems[0][0])
        total.join(block)
    assert total.schedules == SCHEDULES
    assert total.hopeless < max(SCHEDULES / 400, 10), "groups that have lost too many voters are few"
    often = (
        "AddLearner",
        "Promote",
        "Demote",
        "Remove",
        "compact",
        "crash",
        "elected",
        "read",
        "transfer",
        "wipe",
    )
    assert [what for what in often if total.done.get(what, 0) < SCHEDULES / 50] == []


def test_every_defect_of_the_core_is_known_here() -> None:
    assert sorted([*FOUND, *COVERED]) == sorted(mutants())


@pytest.mark.parametrize("mutant", FOUND)
def test_a_defect_is_found(mutant: str) -> None:
    """From a seed that shows it; where the core or the schedules changed it may be a later one."""
    found = catch(mutant, FOUND[mutant], MOST)
    assert found.seed is not None
    assert run_schedule(make_schedule(found.seed)).problem is None, "what it says comes from the defect"


def test_a_seed_says_everything() -> None:
    def story(seed: int) -> list[str]:
        lines: list[str] = []
        run_schedule(make_schedule(seed), say=lambda now, who, what: lines.append(f"{now} {who} {what}"))
        return lines

    first = story(3)
    assert len(first) > 100
    assert story(3) == first
    assert story(4) != first


def test_in_calm_a_group_does_what_it_is_asked_at_once() -> None:
    for seed in range(100):
        schedule = make_schedule(seed)
        pace = replace(schedule.pace, loss=0.0, duplicates=0.0, late=0.0)
        schedule = replace(schedule, actions=(), pace=pace, calm=True, late="")
        report = run_schedule(schedule)
        assert report.problem is None, again(seed)
        assert report.done["elected"] <= 3, "split votes are few"


def test_an_election_that_a_fault_brings_about_after_it_ended_is_no_unrest() -> None:
    """The leader's clock went back just before all healed: it stands still, and says nothing for a while after."""
    seed = 43813
    assert run_schedule(make_schedule(seed)).problem is None, again(seed)


def test_a_leader_is_judged_by_the_clock_of_its_core() -> None:
    """Its clock goes back by 2.25 s just before it is elected, and then it is cut off: for its core no time passes."""
    seed = 275398
    report = run_schedule(make_schedule(seed))
    assert report.problem is None, again(seed)
    assert report.done["cut off at a commit"] == 1


def test_a_learner_whose_promotion_few_know_has_no_log_that_a_voter_needs() -> None:
    """A leader reached the learner alone and lost its storage; another voter had promoted that learner."""
    seed = 585626
    report = run_schedule(make_schedule(seed))
    assert report.problem is None, again(seed)
    assert report.done["wipe"] == report.done["Promote"] == 1


def test_elections_that_split_the_votes_by_the_settings_alone_get_more_time() -> None:
    """Timeouts differ by 200 ms at most, and a candidate needs 381 ms to keep the others from asking."""
    seed = 915646
    report = run_schedule(make_schedule(seed))
    assert report.problem is None, again(seed)
    assert report.healed_ms > ELECTIONS * make_schedule(seed).timing.election_max_ms


def test_stories_and_noise_name_what_can_happen() -> None:
    known = set(Faults(World(make_schedule(0))).kinds)
    told = {
        action.kind for story in STORIES for seed in range(60) for action in story(random.Random(seed), 5000)
    }
    assert told | set(NOISE) == known


def test_a_failing_schedule_is_made_small() -> None:
    mutant = "34-removed-leader-counts"
    make_core = core_of(mutant)
    seed = catch(mutant, FOUND[mutant], MOST).seed
    assert seed is not None
    whole = make_schedule(seed)
    small = shrink(whole, lambda schedule: run_schedule(schedule, make_core=make_core).problem is not None)
    assert run_schedule(small, make_core=make_core).problem is not None
    assert len(small.actions) < len(whole.actions)
    for place in range(len(small.actions)):
        fewer = replace(small, actions=small.actions[:place] + small.actions[place + 1 :])
        assert run_schedule(fewer, make_core=make_core).problem is None, "each action is needed"


@pytest.mark.series
def test_histories_of_clients_are_linearizable() -> None:
    operations = 0
    for seed in range(HISTORIES):
        history = History()
        run_schedule(make_schedule(seed), record=history)
        assert isinstance(check(history.whole()), Linearizable), again(seed)
        operations += len(history.operations)
    assert operations > 10 * HISTORIES


@pytest.mark.parametrize(
    "mutant",
    ["35-read-before-own-commit", "36-late-acks-confirm-reads", "38-read-without-round", "39-lease-read"],
)
def test_histories_show_reads_that_are_too_old(mutant: str) -> None:
    for seed in range(FOUND[mutant], FOUND[mutant] + MOST):
        history = History()
        run_schedule(make_schedule(seed), record=history, make_core=core_of(mutant))
        if isinstance(check(history.whole()), Violation):
            return
    pytest.fail(f"none of {MOST} histories shows {mutant}")


@pytest.mark.series
@pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}")
def test_groups_of_both_languages_keep_every_promise() -> None:
    child = Child()
    try:
        for seed in range(MIXED):
            report = run_schedule(make_schedule(seed), make_core=mixed(child, 7 * seed + 1))
            assert report.problem is None, f"{again(seed)} --mixed"
    finally:
        child.close()
