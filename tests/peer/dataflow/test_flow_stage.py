"""Runs over made-up graphs: every item ends once with the right outputs, whoever is lost and whatever comes late."""

import random
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from peer.dataflow.flow_origin import FlowOrigin, ItemDone, ItemFailed, OriginFlowEffect, SendGo
from peer.dataflow.flow_route import FlowRoute, FlowStage, flow_route
from peer.dataflow.flow_stage import Compute, FlowEffect, FlowStages, Forgotten, SendValue, TellFailed
from peer.dataflow.value_codec import Array
from peer.errors import BadCommand
from planner.model.graph_manifest import GraphManifest
from tests.peer.dataflow.made_up_graphs import CHAIN, RUN, TOWERS

MOST_BYTES = 1 << 30


def computed(manifest: GraphManifest, first: int, stop: int, inputs: Mapping[int, Array]) -> dict[int, Array]:
    """A made-up result of units that depends on every input and on the unit."""
    places = {value.name: place for place, value in enumerate(manifest.values)}
    known = {manifest.values[place].name: int(array) for place, array in inputs.items()}
    for place in range(first, stop):
        unit = manifest.units[place]
        for number, name in enumerate(unit.outputs):
            known[name] = (
                sum((at + 2) * known[used] for at, used in enumerate(unit.inputs)) % 1_000_003 + number
            )
    return {places[name]: np.array(known[name], np.int64) for name in manifest.given(first, stop)}


def inputs_of(manifest: GraphManifest, item: int) -> dict[int, Array]:
    return {place: np.array(31 * item + place, np.int64) for place, _ in enumerate(manifest.inputs)}


def expected(manifest: GraphManifest, item: int) -> dict[int, int]:
    whole = computed(manifest, 0, len(manifest.units), inputs_of(manifest, item))
    places = {value.name: place for place, value in enumerate(manifest.values)}
    return {places[name]: int(whole[places[name]]) for name in manifest.outputs}


class Town:
    """Peers that compute, an origin, and what is between them; what was sent may be lost with a peer."""

    def __init__(self, manifest: GraphManifest, route: FlowRoute, seed: int) -> None:
        self.manifest = manifest
        self.random = random.Random(seed)
        self.stages = {peer: FlowStages(peer, MOST_BYTES) for peer in route.peers}
        self.origin = FlowOrigin(RUN, route)
        self.mail: dict[tuple[str, str], list[SendValue | SendGo | TellFailed]] = {}
        self.work: list[tuple[str, Compute]] = []
        self.done: dict[int, dict[int, int]] = {}
        self.failed: dict[int, str] = {}
        self.computations = 0

    def open(self) -> None:
        for peer in self.origin.route.peers:
            stages = self.stages.setdefault(peer, FlowStages(peer, MOST_BYTES))
            stages.open(RUN, self.origin.epoch, self.origin.route)
        self.of_origin(self.origin.opened())

    def of_origin(self, effects: Iterable[OriginFlowEffect]) -> None:
        for effect in effects:
            match effect:
                case SendValue() | SendGo():
                    self.mail.setdefault(("origin", effect.peer), []).append(effect)
                case ItemDone():
                    assert effect.item not in self.done
                    self.done[effect.item] = {value: int(array) for value, array in effect.outputs.items()}
                case ItemFailed():
                    self.failed[effect.item] = effect.text

    def of_stage(self, peer: str, effects: Iterable[FlowEffect]) -> None:
        for effect in effects:
            match effect:
                case SendValue() | TellFailed():
                    self.mail.setdefault((peer, effect.peer), []).append(effect)
                case Compute():
                    self.work.append((peer, effect))
                case Forgotten():
                    pass

    def step(self) -> bool:
        """Something happens that may happen; False: nothing is left."""
        ways = [way for way, mail in self.mail.items() if mail]
        choices = len(ways) + len(self.work)
        if not choices:
            return False
        chosen = self.random.randrange(choices)
        if chosen >= len(ways):
            self._compute(*self.work.pop(chosen - len(ways)))
            return True
        sender, receiver = ways[chosen]
        said = self.mail[ways[chosen]].pop(0)
        match said:
            case SendValue() if receiver == "origin":
                self.of_origin(self.origin.value(sender, said.epoch, said.item, said.value, said.array))
            case SendValue() if receiver in self.stages:
                effects = self.stages[receiver].value(
                    sender, RUN, said.epoch, said.item, said.value, said.array
                )
                self.of_stage(receiver, effects)
            case SendGo() if receiver in self.stages:
                self.of_stage(receiver, self.stages[receiver].go(sender, RUN, said.epoch, said.below))
            case TellFailed():
                self.of_origin(self.origin.failed(sender, said.epoch, said.item, said.text))
        return True

    def _compute(self, peer: str, work: Compute) -> None:
        if peer not in self.stages:
            return
        self.computations += 1
        found = computed(self.manifest, work.first, work.stop, work.inputs)
        self.of_stage(peer, self.stages[peer].computed(RUN, work.item, found))

    def lose(self, peer: str) -> None:
        """With what it knew, and all that was on its way to it or from it."""
        self.stages.pop(peer, None)
        for way in self.mail:
            if peer in way:
                self.mail[way] = []


def stages_of(cuts: Iterable[int], peers: Iterable[str]) -> list[FlowStage]:
    borders = [0, *cuts]
    return [
        FlowStage(first, stop, peer) for first, stop, peer in zip(borders, borders[1:], peers, strict=False)
    ]


@pytest.mark.parametrize("manifest", [CHAIN, TOWERS], ids=["chain", "towers"])
@pytest.mark.parametrize("seed", range(40))
def test_every_item_ends_once_and_right_whoever_is_lost(manifest: GraphManifest, seed: int) -> None:
    chance = random.Random(seed)
    count = len(manifest.units)

    def route(number: int) -> FlowRoute:
        cuts = sorted({*chance.sample(range(1, count), chance.randrange(count)), count})
        peers = [chance.choice(["p", "q", "r", f"new{number}"]) for _ in cuts]
        return flow_route(manifest, stages_of(cuts, peers), "origin")

    town = Town(manifest, route(0), seed)
    town.open()
    submitted = 0
    for number in range(1, 5):
        for _ in range(chance.randrange(6)):
            item, effects = town.origin.submit(inputs_of(manifest, submitted))
            assert item == submitted
            submitted += 1
            town.of_origin(effects)
        for _ in range(chance.randrange(40)):
            town.step()
        town.lose(chance.choice(town.origin.route.peers))
        town.origin.reroute(route(number))
        town.open()
    while town.step():
        pass
    assert town.failed == {}
    assert town.done == {item: expected(manifest, item) for item in range(submitted)}
    assert town.origin.below == submitted
    for stages in town.stages.values():
        if stages.route(RUN) is town.origin.route:
            assert stages.kept_bytes == 0
            stages.close("origin", RUN)
            assert stages.uses() == frozenset()


def test_what_others_made_is_not_computed_again() -> None:
    first = flow_route(CHAIN, stages_of([1, 2, 3], ["p", "q", "r"]), "origin")
    town = Town(CHAIN, first, 1)
    town.open()
    for item in range(4):
        town.of_origin(town.origin.submit(inputs_of(CHAIN, item))[1])
    while town.step():
        if town.computations == 8:  # some of the last stage are missing
            break
    before = town.computations
    town.work = [(peer, work) for peer, work in town.work if peer != "r"]
    town.lose("r")
    town.origin.reroute(flow_route(CHAIN, stages_of([1, 2, 3], ["p", "q", "s"]), "origin"))
    town.open()
    while town.step():
        pass
    assert len(town.done) == 4
    assert town.computations <= before + 4 + (8 - before % 8)


def test_an_item_that_fails_ends_alone() -> None:
    town = Town(CHAIN, flow_route(CHAIN, stages_of([2, 3], ["p", "q"]), "origin"), 3)
    town.open()
    for item in range(2):
        town.of_origin(town.origin.submit(inputs_of(CHAIN, item))[1])
    while not town.work:
        town.step()
    peer, work = town.work.pop()
    town.of_stage(peer, town.stages[peer].failed(RUN, work.item, (work.first, work.stop), "no memory"))
    while town.step():
        pass
    assert town.failed == {work.item: "no memory"}
    assert town.done == {1 - work.item: expected(CHAIN, 1 - work.item)}


def test_nobody_but_its_maker_gives_a_value_and_nobody_but_its_origin_ends_a_run() -> None:
    route = flow_route(CHAIN, stages_of([1, 3], ["p", "q"]), "origin")
    stages = FlowStages("q", MOST_BYTES)
    stages.open(RUN, 1, route)
    b = route.needs[1][0]
    assert not stages.takes("origin", RUN, 1, 0, b)
    assert not stages.takes("p", RUN, 2, 0, b)
    assert not stages.takes("p", b"x" * 16, 1, 0, b)
    assert stages.takes("p", RUN, 1, 0, b)
    assert stages.close("p", RUN) == []
    assert stages.go("p", RUN, 1, 5) == []
    assert stages.takes("p", RUN, 1, 0, b)
    with pytest.raises(BadCommand, match="another peer's"):
        stages.open(RUN, 2, flow_route(CHAIN, route.stages, "p"))
    with pytest.raises(BadCommand, match="epoch"):
        stages.open(RUN, 0, route)


def test_values_are_kept_up_to_a_bound_and_an_origin_that_stays_away_is_forgotten() -> None:
    route = flow_route(CHAIN, stages_of([1, 3], ["p", "q"]), "origin")
    stages = FlowStages("q", 16)
    stages.open(RUN, 1, route)
    b = route.needs[1][0]
    assert any(isinstance(effect, Compute) for effect in stages.value("p", RUN, 1, 0, b, np.array(1)))
    stages.value("p", RUN, 1, 1, b, np.array(1))
    refused = stages.value("p", RUN, 1, 2, b, np.array(1))
    assert [type(effect) for effect in refused] == [TellFailed]
    stages.gone(100.0, "origin")
    assert stages.tick(110.0) == []
    stages.back("origin")
    assert stages.tick(1000.0) == []
    stages.gone(1000.0, "origin")
    assert stages.tick(1031.0) == [Forgotten(RUN)]
    assert stages.kept_bytes == 0


def test_strings_count_as_many_bytes_as_they_have() -> None:
    route = flow_route(CHAIN, stages_of([1, 3], ["p", "q"]), "origin")
    stages = FlowStages("q", 100)
    stages.open(RUN, 1, route)
    b = route.needs[1][0]
    words = np.array(["é" * 40, ""], object)
    stages.value("p", RUN, 1, 0, b, words)
    assert stages.kept_bytes == 80 + 2 * 4
    assert [type(effect) for effect in stages.value("p", RUN, 1, 1, b, words)] == [TellFailed]
    stages.go("origin", RUN, 1, 2)
    assert stages.kept_bytes == 0


@pytest.mark.parametrize("cuts", [[2], [1, 1, 3], [1, 2]], ids=["too few", "empty", "not all"])
def test_a_route_is_all_units_once(cuts: list[int]) -> None:
    with pytest.raises(BadCommand):
        flow_route(CHAIN, stages_of(cuts, ["p", "q", "r"]), "origin")
