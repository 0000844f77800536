"""Decides how long a unit will take on a peer, how sure that is, and when to measure instead of believing it.

seconds = roofline prior x learned residual. The residual is a Bayesian ridge regression (scikit-learn) of
ln(measured / prior) on what runs have in common: class, provider, kind, shape bucket, and their pairs. What was never
seen keeps the width of its prior, so a new class gets a wide interval. Intervals are stretched until they hold for
classes that were left out, one after the other.

It steers a plan only where the very cell (class, kind, bucket, provider) has MIN_RUNS runs; it generalises to other
cells only when it passed the gate; where the interval is wide it abstains and asks for a probe. Runs of one cell that
differ widen its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import HistoryUnusable
from planner.history.facts import PeerClass, class_named
from planner.history.reading import Cell
from planner.predict.priors import Modality, Roof, leaning, roof_of
from planner.types import UnitKind

MIN_RUNS: Final = 10  # of a cell before it steers
REVISIT_ANSWERS: Final = 100  # after so many answers what steers is measured against what happened
MIN_CLASSES: Final = 5  # left out one after the other, or there is no gate to pass
WIDE: Final = 1.6  # upper over lower end of an interval; beyond that a probe is cheaper than a wrong plan
COVERAGE: Final = 0.90
LEAST_COVERAGE: Final = 0.85  # of the gate
MOST_ERROR: Final = 0.10  # mean absolute error, and the distance that counts as near
LEAST_NEAR: Final = 0.60  # share of predictions that near
PRIOR_WIDTH: Final = 4.0  # without any run: a factor of so much either way
Z90: Final = 1.6449
MOST_WEIGHT: Final = 30.0  # runs of a cell that count: more of them do not make the model itself truer
# How much of the residual each common trait may explain, beside the others.
_SCALES: Final = {
    "class": 1.0,
    "provider": 1.0,
    "kind": 1.0,
    "provider kind": 0.7,
    "provider bucket": 0.5,
    "class kind": 0.5,
    "class kind bucket": 0.3,
}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Query:
    """One unit on one peer. `roof`: what a probe of this machine found; None: the prior of its class."""

    peer: PeerClass
    kind: UnitKind | str
    bucket: int
    flops: float
    weight_bytes: float
    roof: Roof | None = None
    modality: Modality = "text"

    @property
    def cell(self) -> tuple[str, str, int]:
        """What runs are grouped by: the class of the peer, the kind of unit, the bucket of its size."""
        return self.peer.name, self.kind, self.bucket

    def prior_s(self) -> float:
        """Seconds a token by the roofline of the class, before anything is learned."""
        return (self.roof or roof_of(self.peer)).seconds(self.flops, self.weight_bytes)


@dataclass(frozen=True, slots=True)
class Sample:
    """Runs of one cell: how many, and the mean and the variance of ln seconds."""

    query: Query
    runs: int
    mean_ln_s: float
    var_ln_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of one unit and token. `steers`: sure enough to plan with. `why` is for people."""

    seconds: float
    low_s: float
    high_s: float
    runs: int
    steers: bool
    why: str

    @property
    def wide(self) -> bool:
        """Whether the interval is too wide to plan by."""
        return self.high_s > WIDE * self.low_s


@dataclass(frozen=True, slots=True)
class ProbeFirst:
    """Too unsure: measure this peer before it is planned with. `guess` is what would be believed."""

    guess: Prediction
    why: str


@dataclass(frozen=True, slots=True)
class Gate:
    """How predictions did for classes that were left out. `passed`: others may be predicted from these."""

    classes: int
    mean_error: float
    near: float  # share within MOST_ERROR
    coverage: float  # of the intervals of COVERAGE
    stretch: float  # what those intervals had to be stretched by

    @property
    def passed(self) -> bool:
        """Whether classes without measurements may be predicted."""
        return (
            self.classes >= MIN_CLASSES
            and self.mean_error <= MOST_ERROR
            and self.near >= LEAST_NEAR
            and self.coverage >= LEAST_COVERAGE
        )

    def words(self) -> str:
        """What it says, for people."""
        if self.classes < MIN_CLASSES:
            return (
                f"{self.classes} classes were measured, {MIN_CLASSES} are needed to predict others from them"
            )
        verdict = "others are predicted from them" if self.passed else "others are not predicted from them"
        return (
            f"left out one by one, {self.classes} classes were predicted with {self.mean_error:.1%} mean error, "
            f"{self.near:.0%} within {MOST_ERROR:.0%}, {self.coverage:.0%} inside 90 % intervals: {verdict}"
        )


NO_GATE: Final = Gate(0, 1.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Predictor:
    """Made by `fit`."""

    runs: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    gate: Gate = NO_GATE
    _columns: Mapping[str, int] = field(default_factory=dict)
    _model: Any = None
    _spreads: Mapping[tuple[str, str, int], float] = field(default_factory=dict)  # of runs, in ln seconds

    def predict(self, query: Query) -> Prediction | ProbeFirst:
        """The time of one unit, or what to do first."""
        runs = self.runs.get(query.cell, 0)
        prior = query.prior_s()
        factor, said = leaning(query.peer, query.modality, runs)
        where = "a probe of this machine" if query.roof is not None else "the prior of its class"
        told = [f"{where} gives {prior * 1000:.3g} ms", *([said] if said else [])]
        if self._model is None:
            found = _around(prior * factor, math.log(PRIOR_WIDTH), runs, False, told)
            return ProbeFirst(found, f"nothing was learned yet: probe {query.peer.name}")
        mean, std = _predicted(self._model, self._columns, [query])
        stretch = max(1.0, self.gate.stretch) if runs else self.gate.stretch  # judged by cells without runs
        told.append(
            f"runs measured {math.exp(mean[0]):.2f} times that"
            if runs
            else f"like classes took {math.exp(mean[0]):.2f} times that"
        )
        told.append(f"{runs} runs of this very kind" if runs else self.gate.words())
        steers = runs >= MIN_RUNS
        width = Z90 * math.hypot(
            stretch * std[0], self._spreads.get(query.cell, 0.0)
        )  # machines of a class differ
        found = _around(prior * factor * math.exp(mean[0]), width, runs, steers, told)
        if not runs and not self.gate.passed:
            return ProbeFirst(found, f"probe {query.peer.name}: {self.gate.words()}")
        if found.wide:
            return ProbeFirst(
                found,
                f"probe {query.peer.name}: it may take from {found.low_s * 1000:.3g} to {found.high_s * 1000:.3g} ms",
            )
        return found


def _around(seconds: float, half_width: float, runs: int, steers: bool, told: Sequence[str]) -> Prediction:
    low, high = seconds * math.exp(-half_width), seconds * math.exp(half_width)
    narrow = steers and high <= WIDE * low
    return Prediction(seconds, low, high, runs, narrow, "; ".join(told))


def samples_of(cells: Iterable[Cell], roofs: Mapping[str, Roof] | None = None) -> list[Sample]:
    """What a history holds, as samples. `roofs`: probes by class name. Classes of unknown form are left out."""
    found = []
    for cell in cells:
        peer = class_named(cell.device_class)
        if peer is not None:
            roof = (roofs or {}).get(cell.device_class)
            query = Query(peer, cell.kind, cell.bucket, cell.flops, cell.weight_bytes, roof)
            found.append(Sample(query, cell.runs, cell.mean_ln_s, cell.var_ln_s))
    return found


def fit(samples: Sequence[Sample]) -> Predictor:
    """Learns the residual. Without samples, a predictor that knows the priors. Raises HistoryUnusable."""
    if not samples:
        return Predictor()
    kept = sorted(samples, key=lambda sample: (sample.query.cell, sample.mean_ln_s, sample.runs))
    columns = _columns_of(kept)
    model = _fitted(kept, columns)
    spreads: dict[tuple[str, str, int], float] = {}
    for sample in kept:
        cell = sample.query.cell
        spreads[cell] = max(spreads.get(cell, 0.0), math.sqrt(max(0.0, sample.var_ln_s)))
    return Predictor(counted(kept).runs, gate(kept), columns, model, spreads)


def counted(samples: Sequence[Sample]) -> Predictor:
    """Knows how many runs there are of each cell, and no more than the priors of how long they took."""
    runs: dict[tuple[str, str, int], int] = {}
    for sample in samples:
        runs[sample.query.cell] = runs.get(sample.query.cell, 0) + sample.runs
    return Predictor(runs)


def gate(samples: Sequence[Sample]) -> Gate:
    """Leaves out one class after the other, predicts it from the rest, and says how that went.

    The stretch of a class's intervals comes from the other left-out classes, so coverage is not judged by itself.
    """
    names = sorted({sample.query.peer.name for sample in samples})
    if len(names) < MIN_CLASSES:
        return Gate(len(names), 1.0, 0.0, 0.0, 1.0)
    errors: dict[str, Floats] = {}
    scores: dict[str, Floats] = {}  # distance in units of the half interval
    for name in names:
        rest = [sample for sample in samples if sample.query.peer.name != name]
        held = [sample for sample in samples if sample.query.peer.name == name]
        columns = _columns_of(rest)
        mean, std = _predicted(_fitted(rest, columns), columns, [sample.query for sample in held])
        truth = np.array([sample.mean_ln_s - math.log(sample.query.prior_s()) for sample in held])
        errors[name] = np.abs(np.expm1(mean - truth))
        scores[name] = np.abs(mean - truth) / (Z90 * std)
    inside = [scores[name] <= _stretch([scores[other] for other in names if other != name]) for name in names]
    every = np.concatenate(list(errors.values()))
    return Gate(
        classes=len(names),
        mean_error=float(every.mean()),
        near=float((every <= MOST_ERROR).mean()),
        coverage=float(np.concatenate(inside).mean()),
        stretch=_stretch(list(scores.values())),
    )


def _stretch(scores: Sequence[Floats]) -> float:
    """What half intervals must be multiplied by to hold COVERAGE; a little more where few classes say so, since the
    errors of one class go together (conformal prediction: Vovk and others, 2005).
    """
    level = min(1.0, COVERAGE * (1 + 1 / len(scores)))
    return float(np.quantile(np.concatenate(scores), level))


def revisit(answers: int, looked_at: int) -> bool:
    """Whether what steers should be looked at again: `answers` so far, of them `looked_at` at the last look."""
    return answers - looked_at >= REVISIT_ANSWERS


# --- the regression ---------------------------------------------------------------------------------------


def _traits(query: Query) -> dict[str, str]:
    name, kind, bucket, provider = query.peer.name, query.kind, query.bucket, query.peer.provider
    return {
        "class": name,
        "provider": provider,
        "kind": kind,
        "provider kind": f"{provider} {kind}",
        "provider bucket": f"{provider} {bucket}",
        "class kind": f"{name} {kind}",
        "class kind bucket": f"{name} {kind} {bucket}",
    }


def _columns_of(samples: Sequence[Sample]) -> dict[str, int]:
    """A column for each trait that was seen, and one for each sort of trait that was not."""
    seen = {f"{sort}={value}" for sample in samples for sort, value in _traits(sample.query).items()}
    return {key: at for at, key in enumerate([*sorted(seen), *(f"{sort}?" for sort in _SCALES)])}


def _matrix(columns: Mapping[str, int], queries: Sequence[Query]) -> Floats:
    found = np.zeros((len(queries), len(columns)))
    for row, query in enumerate(queries):
        for sort, value in _traits(query).items():
            found[row, columns.get(f"{sort}={value}", columns[f"{sort}?"])] = _SCALES[sort]
    return found


def _fitted(samples: Sequence[Sample], columns: Mapping[str, int]) -> Any:
    try:
        from sklearn.linear_model import BayesianRidge
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise HistoryUnusable("predictions need scikit-learn: install shoal-mesh[history]") from error
    x = _matrix(columns, [sample.query for sample in samples])
    y = np.array([sample.mean_ln_s - math.log(sample.query.prior_s()) for sample in samples])
    weights = np.array([min(float(sample.runs), MOST_WEIGHT) for sample in samples])
    with threadpool_limits(1):  # so small that threads only wait for each other
        return BayesianRidge(max_iter=100).fit(x, y, sample_weight=weights)


def _predicted(model: Any, columns: Mapping[str, int], queries: Sequence[Query]) -> tuple[Floats, Floats]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        mean, std = model.predict(_matrix(columns, queries), return_std=True)
    return np.asarray(mean, np.float64), np.maximum(np.asarray(std, np.float64), 1e-6)
