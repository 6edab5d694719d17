"""Latent classes: groups of people who answer categorical items alike (latent class analysis), holes allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem.estimators.base import PrivateEstimator
from dpem.estimators.told import Profile
from dpem.estimators.uncertainty import Uncertainty
from dpem.models import _latent_class_fit as fitting
from dpem.models._latent_class_fit import Items
from dpem.planning import Model, Outlook, Sizes
from dpem.planning.rehearsal import generator
from dpem.privacy import Curator
from dpem.query import Bound, FloatArray
from dpem.questions.narrow import NarrowQuestion, like, rounded, zero_where_odd
from dpem.questions.schema import Schema
from dpem.steps.base import State, Step, prices
from dpem.steps.check import CHECK_SHARE, Check

#: Parts of ρ: moments, sketch, then the steps.
SHARES = (0.2, 0.2, 0.2, 0.4)
#: Rows that are drawn to see how much a step's sums say about the parameters.
DRAWN = 16_384
#: Shares and probabilities are not below the first, or without noise below the second.
SMALLEST, TINIEST = 1e-3, 1e-12


@dataclass(frozen=True)
class Parameters:
    """Shares of the classes, a probability for each class and level, and what else was released.

    ``observed`` is the share of rows that answer each item, ``overall`` the probabilities without classes; the errors
    are standard errors of weights and probabilities, by sampling (first) and by the noise.
    """

    weights: FloatArray
    probabilities: FloatArray
    observed: FloatArray
    overall: FloatArray
    weights_errors: FloatArray
    probabilities_errors: FloatArray


def answers(xp: Any, x: Any, items: Items) -> Any:
    """One-hot answers h of rows in unit coordinates: a hole is 0 everywhere. *Lemma.* h ≥ 0, and no item's entries add
    up to more than 1 (but for rounding). *Proof.* Entries are 0 or 1, and divided by their item's sum if that is
    more. ∎
    """
    h = xp.astype(x > 0, xp.float64)
    own = like(xp, items.of_level, x)
    return h / xp.matmul(xp.clip(xp.matmul(h, own), 1.0, None), own.T)


@dataclass(frozen=True)
class PairMoments(NarrowQuestion):
    """Σ (h, the products c_i·c_j of effects of different items), each product once.

    *Lemma.* ℓ2 sensitivity √(J(J + 2)) for J items. *Proof.* An item's effects c_j are within the unit ball, being a
    mean of unit vectors and 0. So with t_j = ⟨c_j, c′_j⟩ ∈ [−1, 1], the products of two rows have the inner product
    Σ_{i<j} t_i t_j = ((Σt)² − Σt²)/2 ≥ −J/2, their one-hot answers one ≥ 0; and a contribution's square is at most
    J(J − 1)/2 + J. Hence |v − v′|² ≤ J(J − 1) + 2J + J. ∎
    """

    items: Items
    label: str = "answers, and products of the effects of two items"

    @property
    def bound(self) -> Bound:
        J = len(self.items.levels)
        size = math.sqrt(J * (J + 1) / 2)
        return rounded(Bound(2.0, math.sqrt(J * (J + 2)), 1.0, size), 4 * self.schema.width**2)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        h = answers(xp, x, self.items)
        c = xp.matmul(h, like(xp, self.items.effects, x))
        i, j = self.items.pairs
        products = xp.reshape(xp.matmul(c.T, c), (-1,))
        flat = (i * c.shape[1] + j).astype(np.int64)
        return xp.concat([xp.sum(h, axis=0), xp.take(products, _beside(xp, flat, x))])


@dataclass(frozen=True)
class Waves(NarrowQuestion):
    """Σ (cos s, sin s, cos 2s, sin 2s) for the angles s = h·phases, one for each of M directions.

    *Lemma.* ℓ2 sensitivity 5√M/2. *Proof.* In a direction two rows differ by 2(1 − cos u) + 2(1 − cos 2u), u = s − s′,
    and with a = cos u that is 2(3 − a − 2a²) ≤ 2·(3 + 1/8) = 25/4. ∎
    """

    items: Items
    phases: FloatArray = field(repr=False)
    label: str = "waves along the directions in which items go together"

    @property
    def bound(self) -> Bound:
        M = self.phases.shape[1]
        return rounded(Bound(2.0, 2.5 * math.sqrt(M), 1.0, math.sqrt(2 * M)), 4 * M)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        s = xp.matmul(answers(xp, x, self.items), like(xp, self.phases, x))
        waves = [xp.cos(s), xp.sin(s), xp.cos(2 * s), xp.sin(2 * s)]
        return xp.concat([xp.sum(wave, axis=0) for wave in waves])


@dataclass(frozen=True)
class ClassSums(NarrowQuestion):
    """Σ r_k·(1, h) for every class k, with r the chance of each class given the row's answers.

    *Lemma.* ℓ2 sensitivity √(2(J + 1)). *Proof.* Contributions are ≥ 0, so inner products are; a contribution's square
    is Σ r_k²·(1 + |h|²) ≤ 1 + J, since r ≥ 0 adds up to at most 1 and the entries of each item to at most 1. ∎
    """

    items: Items
    weights: FloatArray = field(repr=False)
    probabilities: FloatArray = field(repr=False)
    label: str = "answers by class"

    @property
    def bound(self) -> Bound:
        size = math.sqrt(1 + len(self.items.levels))
        return rounded(Bound(1.0, math.sqrt(2.0) * size, 1.0, size), 4 * self.probabilities.size)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        h = answers(xp, x, self.items)
        r = chances(xp, h, self.weights, self.probabilities)
        return xp.concat([xp.sum(r, axis=0), xp.reshape(xp.matmul(r.T, h), (-1,))])


def log_joint(xp: Any, h: Any, weights: FloatArray, probabilities: FloatArray) -> Any:
    """Log of the chance of a class and of the row's answers in it: rows × classes."""
    return xp.matmul(h, like(xp, np.log(probabilities).T, h)) + like(xp, np.log(weights), h)


def chances(xp: Any, h: Any, weights: FloatArray, probabilities: FloatArray) -> Any:
    """The chance of each class given the answers, clamped: at least 0, and together at most 1."""
    joint = log_joint(xp, h, weights, probabilities)
    r = xp.exp(joint - xp.max(joint, axis=1, keepdims=True))
    r = xp.clip(zero_where_odd(xp, r / xp.sum(r, axis=1, keepdims=True)), 0.0, 1.0)
    return r / xp.clip(xp.sum(r, axis=1, keepdims=True), 1.0, None)


def _beside(xp: Any, places: Any, x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return places
    from array_api_compat import device

    return xp.asarray(places, device=device(x))


@dataclass(frozen=True)
class AskMoments(Step):
    """Answers and pairs of answers: the shares without classes, and the plane in which the classes lie."""

    def describe(self) -> str:
        return "answers to each item, and to each pair of items"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        items: Items = model.items
        question = PairMoments(model.schema, items)
        noise = curator.noise_scale(question, self.rho)
        mean = curator.measure(question, self.rho)
        m = items.of_level.shape[0]
        observed = np.clip(mean[:m] @ items.of_level, 0.02, 1.0)
        observed[observed > 1 - 2 * noise * np.sqrt(items.levels) - 1e-9] = 1.0
        overall = items.within(mean[:m] / (items.of_level @ observed), 1e-3)
        o, (i, j) = items.of_effect @ observed, items.pairs
        error = math.sqrt(noise**2 + 1 / curator.n_rows)
        pairs = (mean[m:] / (o[i] * o[j]), error / (o[i] * o[j]))
        moments = fitting.Moments(observed, overall @ items.effects, error / o, *pairs)
        return replace(state, notes={"moments": moments, "overall": overall})


@dataclass(frozen=True)
class AskWaves(Step):
    """A sketch along the plane, and the classes that fit it and the moments: the start."""

    def describe(self) -> str:
        return "start: waves along the directions in which items go together"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        items, moments = model.items, state.notes["moments"]
        where = fitting.plane(items, moments, min(model.n_classes - 1, len(moments.mean)))
        phases = fitting.phases(items, moments, where)
        question = Waves(model.schema, items, phases)
        noise = curator.noise_scale(question, self.rho)
        cos, sin, cos2, sin2 = np.split(curator.measure(question, self.rho), 4)
        seen = np.concatenate([cos + 1j * sin, cos2 + 1j * sin2])
        sketch = fitting.Sketch(phases, seen, math.hypot(noise, math.sqrt(0.5 / curator.n_rows)))
        found = fitting.start(items, moments, sketch, where, model.n_classes)
        return model.taken(state, found, curator.n_rows, SMALLEST)


@dataclass(frozen=True)
class AskClasses(Step):
    """Answers by class at the present parameters, and the step to the parameters that explain them and all before."""

    def describe(self) -> str:
        return "step: answers by class"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        theta, items = state.theta, model.items
        question = ClassSums(model.schema, items, theta.weights, theta.probabilities)
        seen, noise = curator.measure(question, self.rho), curator.noise_scale(question, self.rho)
        fit = state.notes["fit"]._replace(w=theta.weights, mu=theta.probabilities @ items.effects)
        found = fitting.step(items, fit, theta.probabilities, theta.observed, seen, noise, model.drawn(theta))
        return model.taken(state, found, curator.n_rows, SMALLEST)


@dataclass(frozen=True)
class Converge(Step):
    """EM to its end, without noise: for the non-private reference only."""

    rounds: int = 500

    def describe(self) -> str:
        return f"EM without noise, up to {self.rounds} rounds"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        theta, items, K = state.theta, model.items, model.n_classes

        def update(x: FloatArray) -> FloatArray:
            w, p = np.maximum(x[:K], TINIEST), np.maximum(x[K:].reshape(K, -1), TINIEST)
            return fitting.em_step(items, curator.measure(ClassSums(model.schema, items, w, p), math.inf), K)

        x = fitting.fixed_point(update, np.concatenate([theta.weights, theta.probabilities.ravel()]), self.rounds)
        theta = replace(theta, weights=x[:K] / x[:K].sum(), probabilities=items.within(x[K:].reshape(K, -1), TINIEST))
        fit = fitting.exact(items, theta.weights, theta.probabilities, model.drawn(theta))
        return model.taken(state, fit, curator.n_rows, TINIEST)


@dataclass(frozen=True)
class LatentClass(Model):
    """K classes; in each the items are answered independently."""

    n_classes: int
    items: Items

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        check, rest = prices(sizes.rho, (CHECK_SHARE, 1 - CHECK_SHARE)) if sizes.check else (0.0, sizes.rho)
        moments, waves, *sums = prices(rest, SHARES)
        last = [Converge(math.inf)] if math.isinf(sizes.rho) else [AskClasses(rho) for rho in sums]
        steps = (AskMoments(moments), AskWaves(waves), *last)
        advice = "Fewer classes, more rows or a larger epsilon may show them; perhaps there are none."
        return (*steps, Check(check, rival="independent answers (one class)", advice=advice)) if sizes.check else steps

    def taken(self, state: State, fit: fitting.Fit, n: int, least: float) -> State:
        """The state with these classes, made shares and probabilities of at least that."""
        w = np.clip(fit.w, least, 1.0)
        p = self.items.within(self.items.probabilities(fit.mu), least)
        seen = state.notes["moments"].observed, state.notes["overall"]
        theta = Parameters(w / w.sum(), p, *seen, *fit.errors(self.items, n))
        return replace(state, theta=theta, notes={**state.notes, "fit": fit})

    def drawn(self, theta: Parameters) -> fitting.Drawn:
        """Rows of the fitted classes, to see how much sums by class say about the parameters."""
        h = answers(numpy_api, self.draw(theta, DRAWN, generator(0))[0], self.items)
        return fitting.Drawn(h, chances(numpy_api, h, theta.weights, theta.probabilities))

    def outlook(self, sizes: Sizes, steps: tuple[Step, ...]) -> Outlook:
        if self.n_classes > sizes.n:
            raise ValueError(f"n_classes must be at most the number of rows ({sizes.n}), got {self.n_classes}.")
        return Outlook()

    def log_density(self, xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
        joint = log_joint(xp, answers(xp, x, self.items), theta.weights, theta.probabilities)
        most = xp.max(joint, axis=1, keepdims=True)
        return (most + xp.log(xp.sum(xp.exp(joint - most), axis=1, keepdims=True)))[:, 0]

    def simpler(self, theta: Parameters) -> Parameters:
        return replace(theta, weights=np.ones(1), probabilities=theta.overall[None])

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, None]:
        first, group = self.items.first, rng.choice(len(theta.weights), size=n, p=theta.weights)
        x = -np.ones((n, first[-1]))
        for j, L in enumerate(self.items.levels):
            chance = np.cumsum(theta.probabilities[:, first[j] : first[j + 1]], axis=1)[group, :-1]
            answer = np.sum(rng.random((n, 1)) > chance, axis=1)
            x[np.arange(n), first[j] + answer] = 1.0
            x[rng.random(n) >= theta.observed[j], first[j] : first[j] + L] = np.nan
        return x, None


class Shares(Uncertainty):
    """Uncertainty of numbers that lie between 0 and 1."""

    def intervals(self, level: float) -> FloatArray:
        return np.clip(super().intervals(level), 0.0, 1.0)


class DPLatentClass(PrivateEstimator):
    """Latent class analysis under differential privacy: groups of people who answer categorical items alike.

    Within a class the items are answered independently, each with probabilities of the class's own. The classes are
    found from released moments and a sketch, then improved by EM's sums; every answer of a row counts once, so nothing
    is clipped and no bounds are needed. An answer that is missing, or that is no declared level, is a hole.

    Parameters
    ----------
    n_classes : int
        How many classes, at least 2.
    epsilon, delta : float
        The privacy guarantee of the fit; ``epsilon=inf`` is the non-private reference.
    levels : dict
        The possible answers to each item, by the column's name: public knowledge, never computed from the rows.
        Columns of an array are called x0, x1, …
    rows_per_person : int
        The most rows that one person has; all of them are protected together.
    budget : Budget or Ledger, optional
        What the fit is charged to.
    check : bool
        Whether 5 % of the price goes to a check against independent answers.
    random_state : int, optional
        Makes the noise repeatable, for simulations: such a fit is **not** private.

    Attributes
    ----------
    weights_ : array of shape (n_classes,)
        The share of each class, about the largest first.
    probabilities_ : dict of arrays of shape (n_classes, levels)
        For each item, how likely each level is in each class.
    fit_check_, plan_, guarantee_, releases_ :
        Whether the classes describe the rows better than independent answers, and what was asked and paid.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.random(20_000) < 0.3
    >>> X = (rng.random((20_000, 6)) < np.where(kind, 0.9, 0.2)[:, None]).astype(float)
    >>> model = DPLatentClass(2, epsilon=1.0, delta=1e-6, levels={f"x{j}": [0, 1] for j in range(6)}).fit(X)
    >>> model.weights_.round(1).tolist()
    [0.7, 0.3]
    >>> model.probabilities_["x0"].round(1).tolist()
    [[0.8, 0.2], [0.1, 0.9]]
    >>> bool(np.mean(model.predict(X) == kind) > 0.95)
    True
    """

    _every_level = True

    def __init__(
        self,
        n_classes: int = 2,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        levels: Any = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_classes = n_classes
        self.epsilon = epsilon
        self.delta = delta
        self.levels = levels
        self.rows_per_person = rows_per_person
        self.budget = budget
        self.check = check
        self.random_state = random_state

    def _model(self, schema: Schema) -> LatentClass:
        if arguments.count("n_classes", self.n_classes) < 2:
            raise ValueError("n_classes must be at least 2: one class is what the fit check compares with.")
        counts = np.unique(schema.column, return_counts=True)[1]
        if len(counts) < 2:
            raise ValueError("X must have at least 2 columns: classes show in how answers to items go together.")
        return LatentClass(schema, int(self.n_classes), Items(tuple(int(count) for count in counts)))

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        by_item = {}
        for column in np.unique(schema.column):
            own = np.flatnonzero(schema.column == column)
            by_item[schema.names[own[0]].rpartition("=")[0]] = theta.probabilities[:, own]
        return {"weights_": theta.weights, "probabilities_": by_item}

    def _uncertainty(self) -> Uncertainty:
        theta, K = self.theta_, len(self.theta_.weights)
        names = [f"share of class {k + 1}" for k in range(K)]
        names += [f"class {k + 1}: {name}" for k in range(K) for name in self.schema_.names]
        estimate, sampling, privacy = (
            np.concatenate([w, p.ravel()])
            for w, p in zip(
                (theta.weights, *theta.weights_errors), (theta.probabilities, *theta.probabilities_errors), strict=True
            )
        )
        return Shares.of(names, estimate, sampling, privacy, "precision of all releases, added up step by step")

    def _picture_scale(self) -> tuple[FloatArray, str]:
        return np.ones(len(self._errors.names)), "shares and probabilities"

    def _profile(self) -> Profile:
        theta, names = self.theta_, self.schema_.names
        groups = tuple(f"class {k + 1}" for k in range(len(theta.weights)))
        ends = np.zeros(len(names)), np.ones(len(names))
        words = "How likely each answer is in each class. Which class is called 1 means nothing."
        return Profile(groups, theta.weights, names, theta.probabilities, None, *ends, True, words)

    def predict_proba(self, X: Any) -> FloatArray:
        """The chance of each class, given a row's answers."""
        items = self._model(self.schema_).items
        return np.asarray(
            self._each(
                lambda xp, theta, x, y: chances(xp, answers(xp, x, items), theta.weights, theta.probabilities), X
            )
        )

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The most likely class of each row: 0, 1, …"""
        return np.argmax(self.predict_proba(X), axis=1)

    def score_samples(self, X: Any) -> FloatArray:
        """The log-likelihood of each row's answers, holes left out."""
        return np.asarray(self._each(self._model(self.schema_).log_density, X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Invented rows without holes, drawn from the fitted classes, and the class of each."""
        check_is_fitted(self)
        n, weights = arguments.count("n_samples", n_samples), self.weights_
        rng = np.random.default_rng(random_state)
        group = np.sort(rng.choice(len(weights), size=n, p=weights))
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        columns = []
        for name, p in zip(names, self.probabilities_.values(), strict=True):
            own = self.levels_[name]
            place = np.sum(rng.random((len(group), 1)) > np.cumsum(p, axis=1)[group, :-1], axis=1)
            columns.append(np.array(own.labels if own.texts else own.values)[place])
        return np.column_stack(columns), group
