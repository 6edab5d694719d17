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
from dpem.fitting.check import CHECK_SHARE, Check
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import State, Step, prices
from dpem.fitting.summary import Profile
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.latent_class import number_of_classes as number
from dpem.models.latent_class import planning
from dpem.models.latent_class import steps as fitting
from dpem.models.latent_class.queries import ClassSums, Items, PairMoments, Waves, answers, chances, log_joint
from dpem.privacy import Curator
from dpem.queries.schema import Schema
from dpem.query import Bound, FloatArray

#: Parts of ρ: moments, sketch, then the steps.
SHARES = (0.25, 0.25, 0.1, 0.15, 0.25)
#: Classes are told to be unclear if privacy leaves probabilities unsure by so many times the plan's upper end, and by
#: so much.
UNCLEAR, LEAST_UNCLEAR = 2.0, 0.05
#: Rows that are drawn to see how much a step's sums say about the parameters.
DRAWN = 16_384
#: Shares and probabilities are not below the first, or without noise below the second.
SMALLEST, TINIEST = 1e-3, 1e-12


@dataclass(frozen=True)
class Parameters:
    """Shares of the classes, a probability for each class and level, and what else was released.

    ``observed`` is the share of rows that answer each item, ``overall`` the probabilities without classes; the errors
    are standard errors of weights and probabilities, by sampling (first) and by the noise; ``path`` has the scores of
    1, 2, … classes where their number was found.
    """

    weights: FloatArray
    probabilities: FloatArray
    observed: FloatArray
    overall: FloatArray
    weights_errors: FloatArray
    probabilities_errors: FloatArray
    path: FloatArray = field(default_factory=lambda: np.zeros(0))

    def largest_first(self) -> Parameters:
        """The same classes, by their shares."""
        order = np.argsort(-self.weights, kind="stable")
        return replace(
            self,
            weights=self.weights[order],
            probabilities=self.probabilities[order],
            weights_errors=self.weights_errors[:, order],
            probabilities_errors=self.probabilities_errors[:, order],
        )


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
        error = fitting.with_sampling(noise, curator.n_rows)
        pairs = (mean[m:] / (o[i] * o[j]), error / (o[i] * o[j]))
        moments = fitting.Moments(observed, overall @ items.effects, error / o, *pairs)
        return replace(state, notes={"moments": moments, "overall": overall})


@dataclass(frozen=True)
class AskWaves(Step):
    """A sketch along the plane, and the classes that fit it and the moments: the start."""

    def describe(self) -> str:
        return "start: waves along the directions in which items go together"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        items, moments, K = model.items, state.notes["moments"], model.n_classes
        q = min(K - 1, len(moments.mean)) if K else number.directions_seen(items, moments, model.most - 1)
        where = fitting.plane(items, moments, q)
        phases = fitting.phases(items, moments, where)
        question = Waves(model.schema, items, phases)
        noise = curator.noise_scale(question, self.rho)
        cos, sin, cos2, sin2 = np.split(curator.measure(question, self.rho), 4)
        seen = np.concatenate([cos + 1j * sin, cos2 + 1j * sin2])
        sketch = fitting.Sketch(phases, seen, fitting.with_sampling(noise, 2 * curator.n_rows))
        if K:
            found, path = fitting.start(items, moments, sketch, where, K), np.zeros(0)
        else:
            found, path = number.chosen(items, moments, sketch, where, model.most, curator.n_rows)
        doubt = number.doubt(number.missed(items, moments, sketch, found))
        notes = {**state.notes, "path": path, "doubt": doubt}
        return model.taken(replace(state, notes=notes), found, curator.n_rows, SMALLEST)


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
        found = fitting.step(items, fit, theta.probabilities, theta.observed, seen, noise, model.drawn(theta, DRAWN))
        return model.taken(state, found, curator.n_rows, SMALLEST)


@dataclass(frozen=True)
class Converge(Step):
    """EM to its end, without noise: for the non-private reference only."""

    rounds: int = 500

    def describe(self) -> str:
        return f"EM without noise, up to {self.rounds} rounds"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        theta, items, K = state.theta, model.items, len(state.theta.weights)

        def update(x: FloatArray) -> FloatArray:
            w, p = np.maximum(x[:K], TINIEST), np.maximum(x[K:].reshape(K, -1), TINIEST)
            return fitting.em_step(items, curator.measure(ClassSums(model.schema, items, w, p), math.inf), K)

        x = fitting.fixed_point(update, np.concatenate([theta.weights, theta.probabilities.ravel()]), self.rounds)
        theta = replace(theta, weights=x[:K] / x[:K].sum(), probabilities=items.within(x[K:].reshape(K, -1), TINIEST))
        fit = fitting.exact(items, theta.weights, theta.probabilities, model.drawn(theta, DRAWN))
        return model.taken(state, fit, curator.n_rows, TINIEST)


@dataclass(frozen=True)
class LatentClass(Model):
    """K classes; in each the items are answered independently. ``n_classes`` 0: their number is found too."""

    n_classes: int
    items: Items
    effect = planning.EFFECT

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        check, rest = prices(sizes.rho, (CHECK_SHARE, 1 - CHECK_SHARE)) if sizes.check else (0.0, sizes.rho)
        moments, waves, *sums = prices(rest, SHARES)
        last = [Converge(math.inf)] if math.isinf(sizes.rho) else [AskClasses(rho) for rho in sums]
        steps = (AskMoments(moments), AskWaves(waves), *last)
        advice = "Fewer classes, more rows or a larger epsilon may show them; perhaps there are none."
        return (
            (*steps, Check(check, against="independent answers (one class)", advice=advice)) if sizes.check else steps
        )

    @property
    def most(self) -> int:
        """How many classes are tried where their number is to be found."""
        return min(number.MOST, planning.most_classes(self.items))

    def taken(self, state: State, fit: fitting.Fit, n: int, least: float) -> State:
        """The state with these classes, made shares and probabilities of at least that."""
        w = np.clip(fit.w, least, 1.0)
        p = self.items.within(self.items.probabilities(fit.mu), least)
        moments: fitting.Moments = state.notes["moments"]
        edge = fitting.noise_edge(len(moments.mean), float(np.mean(moments.pairs_error)))
        seen = moments.observed, state.notes["overall"]
        errors = fit.errors(self.items, n, edge, state.notes["doubt"])
        theta = Parameters(w / w.sum(), p, *seen, *errors, state.notes["path"])
        return replace(state, theta=theta, notes={**state.notes, "fit": fit})

    def drawn(self, theta: Parameters, rows: int) -> fitting.Drawn:
        """Rows of such classes, to see how much sums by class say about the parameters."""
        h = answers(numpy_api, self.draw(theta, rows, generator(0))[0], self.items)
        return fitting.Drawn(h, chances(numpy_api, h, theta.weights, theta.probabilities))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        K, n = self.n_classes or min(number.RECKONED, self.most), sizes.n
        if n < K:
            raise ValueError(f"n_classes must be at most the number of rows ({n}), got {K}.")

        def noise(bound: Bound, rho: float) -> float:
            return 0.0 if math.isinf(rho) else sizes.rows_per_person * bound.l2 / (n * math.sqrt(2 * rho))

        def drawn(items: Items, w: FloatArray, p: FloatArray, rows: int) -> fitting.Drawn:
            none = np.zeros((2, K)), np.zeros((2, *p.shape))
            theta = Parameters(w, p, np.ones(len(items.levels)), w @ p, *none)
            return replace(self, items=items).drawn(theta, rows)

        phases = np.zeros((self.schema.width, len(fitting.directions(min(K - 1, self.items.effects.shape[1])))))
        asked = PairMoments(self.schema, self.items), Waves(self.schema, self.items, phases)
        sums = ClassSums(self.schema, self.items, np.ones(K), np.ones((K, self.schema.width))).bound
        pairs, waves = (noise(question.bound, step.rho) for question, step in zip(asked, steps[:2], strict=True))
        each = tuple(noise(sums, step.rho) for step in steps if isinstance(step, AskClasses))
        noises = planning.Noises(pairs, waves, each)
        return planning.predict_fit(
            self.items, K, n, noises, drawn, sizes.effect or planning.TYPICAL, self.n_classes == 0
        )

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


class DPLatentClass(PrivateEstimator):
    """Latent class analysis under differential privacy: groups of people who answer categorical items alike.

    Within a class the items are answered independently, each with probabilities of the class's own. The classes are
    found from released moments and a sketch, then improved by EM's sums; every answer of a row counts once, so nothing
    is clipped and no bounds are needed. An answer that is missing, or that is no declared level, is a hole.

    Parameters
    ----------
    n_classes : int or "auto"
        How many classes, at least 2; "auto" finds the number (at most 6) from what the start asks, at no further price.
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
    n_classes_ : int
        How many classes there are.
    n_classes_scores_ : array
        With "auto": the scores of 1, 2, … classes; the least decides, and 1 means that there is no sign of classes.
    weights_ : array of shape (n_classes,)
        The share of each class, the largest first; class 1 is the label 0 of :meth:`predict`.
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
        n_classes: int | str = 2,
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
        K = arguments.count_or_auto("n_classes", self.n_classes)
        if K == 1:
            raise ValueError("n_classes must be at least 2: one class is what the fit check compares with.")
        items = Items(tuple(int(count) for count in np.unique(schema.column, return_counts=True)[1]))
        most = planning.most_classes(items)
        if most < 2:
            raise ValueError(
                "X must have at least 3 columns: classes show in how answers to several items go together."
            )
        if most < K:
            raise ValueError(f"n_classes must be at most {most} with so few answers, got {K}.")
        return LatentClass(schema, K, items)

    def _set_fitted(self, probe: Any, state: State, *known: Any) -> None:
        super()._set_fitted(probe, replace(state, theta=state.theta.largest_first()), *known)

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        by_item = {}
        for column in np.unique(schema.column):
            own = np.flatnonzero(schema.column == column)
            by_item[schema.names[own[0]].rpartition("=")[0]] = theta.probabilities[:, own]
        number_of = {"n_classes_": len(theta.weights), "n_classes_scores_": theta.path}
        return {"weights_": theta.weights, "probabilities_": by_item, **number_of}

    def _diagnostics(self) -> list[Diagnostic]:
        told, error = self.plan_.prediction, math.sqrt(float(np.mean(self.theta_.probabilities_errors[1] ** 2)))
        known = self.fit_check_ is not None and not self.fit_check_.better  # it has been said already
        if told is None or known or error <= max(UNCLEAR * told.high, LEAST_UNCLEAR):
            return []
        words = (
            f"The classes are less distinct than planned: the standard error of the probabilities due to privacy is "
            f"{error:.2f} on average, where the plan expected {told.median:.2g}."
        )
        advice = "Use fewer classes, more rows or a larger epsilon; there may be no classes at all."
        return [Diagnostic("indistinct-classes", "warning", words, advice)]

    def _uncertainty(self) -> Uncertainty:
        theta, K = self.theta_, len(self.theta_.weights)
        names = [f"class {k + 1}: share" for k in range(K)]
        names += [f"class {k + 1}: {name}" for k in range(K) for name in self.schema_.names]
        estimate, sampling, privacy = (
            np.concatenate([w, p.ravel()])
            for w, p in zip(
                (theta.weights, *theta.weights_errors), (theta.probabilities, *theta.probabilities_errors), strict=True
            )
        )
        note = "precision of all releases, added up step by step"
        return Uncertainty.of(names, estimate, sampling, privacy, note, ["share"] * len(names))

    def _picture_scale(self) -> tuple[FloatArray, str]:
        return np.ones(len(self._errors.names)), "shares and probabilities"

    def _profile(self) -> Profile:
        theta, names = self.theta_, self.schema_.names
        groups = tuple(f"class {k + 1}" for k in range(len(theta.weights)))
        ends = np.zeros(len(names)), np.ones(len(names))
        words = "How likely each answer is in each class; the largest class is called 1."
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
