"""The steps that fit a mixture of regressions: sizes, moments, directions, cells, the choice of a start, scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpem.fitting.step import State, Step
from dpem.models.mixture_regression import newton
from dpem.models.mixture_regression.cells import CellFit, Cells, edges, fit_cells
from dpem.models.mixture_regression.coordinates import Frame
from dpem.models.mixture_regression.scores import LineLeads, Lines, LineScores
from dpem.models.mixture_regression.start_queries import ColumnSizes, LineCells, LineMoments, UnevenSpread
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

#: What a clip is where nothing is noisy: nothing is clipped, and nothing overflows.
WIDE = 1e6
#: Cells along each direction and of the residual, by the number of directions. Few: every cell has the same noise.
CELLS = {1: (6, 12), 2: (4, 10), 3: (3, 10)}


@dataclass(frozen=True)
class SizeColumns(Step):
    """Centre and spread of every column and of the response, in rounds that zoom in: bounds may be wide."""

    passes: ClassVar[int] = 3

    def describe(self) -> str:
        return "centre, spread and observed share of every column"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        D = model.schema.width + 1
        center, half = np.zeros(D), np.ones(D)
        for last in (False, False, True):
            question = ColumnSizes(model.schema, center, half)
            answer = curator.measure(question, self.rho / self.passes)
            noise = curator.noise_scale(question, self.rho / self.passes)
            share = np.clip(answer[:D], 0.05, 1.0)
            center = np.clip(center + half * np.clip(answer[D : 2 * D] / share, -1, 1), -1, 1)
            deviation = half * np.clip(answer[2 * D :] / (math.sqrt(2) * share), 0, 1)
            if not last:
                half = np.clip(4 * np.hypot(deviation, half * noise), 1e-9, 1.0)
        spread = np.maximum(math.sqrt(math.pi / 2) * deviation, np.maximum(2 * half * noise, 1e-9))
        return replace(state, notes={**state.notes, "frame": Frame.of_sizes(center, spread), "observed": share})


@dataclass(frozen=True)
class FindMoments(Step):
    """Second moments of (1, x, y): the columns' correlations, the one best line and its residual spread.

    Rows are scaled into a ball of radius R, R² = 1 + ``reach``²·(d + 1) in spreads.
    """

    reach: float = 1.1

    def describe(self) -> str:
        return "second moments of columns and response"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        sizes: Frame = state.notes["frame"]
        d = model.schema.width
        radius = math.sqrt(1 + self.reach**2 * (d + 1)) if math.isfinite(self.rho) else WIDE
        question = LineMoments(model.schema, sizes, radius)
        M = unpacked(curator.measure(question, self.rho), d + 2)
        counted = float(np.clip(M[0, 0], 0.02, 1.0))
        noise = curator.noise_scale(question, self.rho) / math.sqrt(2) / counted
        observed = state.notes["observed"][:-1]
        mean = M[0, 1:] / counted / np.append(observed, 1.0)
        second = M[1:, 1:] / counted
        second[:d, :d] /= np.outer(observed, observed) + np.diag(observed - observed**2)  # holes were put as 0
        second[:d, d] /= observed
        second = second - np.outer(mean, mean)
        edge = 2 * noise * math.sqrt(d + 1)
        values, vectors = np.linalg.eigh(second[:d, :d])
        values = np.maximum(values, max(edge, 1e-9))
        root = (vectors / np.sqrt(values)) @ vectors.T
        slope = root @ second[:d, d]
        size = max(float(second[d, d]), edge / 4, 1e-12)
        slope *= min(1.0, math.sqrt(0.95 * size) / max(float(np.linalg.norm(slope)), 1e-300))
        spread = np.diag(sizes.whiten)
        frame = Frame(
            sizes.mean + mean[:d] / spread,
            root * spread,
            sizes.y_mean + sizes.y_spread * float(mean[d]),
            sizes.y_spread * math.sqrt(size),
        )
        line = np.append(0.0, slope / math.sqrt(size))
        line = model.allowed(frame, line)
        residual = math.sqrt(max(1 - float(slope @ slope) / size, 0.05) + float(line[0]) ** 2)
        present = float(state.notes["observed"][-1])
        found = {"frame": frame, "line": line, "spread": residual, "present": present}
        return replace(state, notes={**state.notes, **found})


@dataclass(frozen=True)
class FindDirections(Step):
    """The directions along which squared residuals of the one line grow: there the slopes of the classes differ."""

    directions: int = 2
    reach: float = 1.15

    def describe(self) -> str:
        return f"{self.directions} directions in which residuals spread unevenly"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        notes, d = state.notes, model.schema.width
        radius = radius_of_directions(d, self.reach)
        question = UnevenSpread(model.schema, notes["frame"], notes["line"], notes["spread"], radius)
        M = unpacked(curator.measure(question, self.rho), d + 1)
        uneven = np.column_stack([M[1:, 1:] - M[0, 0] * np.eye(d), M[1:, 0]])
        axes = np.linalg.svd(uneven)[0][:, : self.directions]
        return replace(state, notes={**notes, "axes": axes})


def radius_of_directions(d: int, reach: float = 1.15) -> float:
    return math.sqrt(1 + reach**2 * d)


@dataclass(frozen=True)
class CountCells(Step):
    """Counts in cells of those directions and the residual; fits of any number of lines to them are free."""

    directions: int = 2
    classes: int = 2

    def describe(self) -> str:
        x, r = CELLS[self.directions]
        return f"counts in {x**self.directions * r} cells: starts, and how many lines there are"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        notes, q = state.notes, self.directions
        axes: FloatArray = notes.get("axes", np.eye(model.schema.width, q))
        x, r = CELLS[q]
        x_edges, r_edges = edges(x, 2.6), edges(r, 3.2)
        question = LineCells(model.schema, notes["frame"], notes["line"], notes["spread"], axes, x_edges, r_edges)
        answer = curator.measure(question, self.rho).reshape((x,) * q + (r,))
        present = notes["present"]
        noise = curator.noise_scale(question, self.rho) / present
        cells = Cells(answer / present, noise, curator.n_rows * present, x_edges, r_edges)
        fits = {k: fit_cells(cells, k) for k in range(1, self.classes + 2)}
        starts = [fits[self.classes]]
        if q > max(self.classes - 1, 1):
            starts.append(fit_cells(cells.leading(max(self.classes - 1, 1)), self.classes))
        plain = fit_cells(cells, self.classes, same_line=True)

        def lines(fit: CellFit) -> Lines:
            own = np.tile(notes["line"], (self.classes, 1))
            own[:, 0] += notes["spread"] * fit.intercepts
            own[:, 1:] += notes["spread"] * fit.slopes @ axes[:, : fit.slopes.shape[1]].T
            weights = np.maximum(fit.weights, 0.03)
            own = np.array([model.allowed(notes["frame"], line) for line in own])
            return Lines(present * weights / weights.sum(), own, notes["spread"] * fit.spreads)

        path = np.array([fits[k].misfit for k in sorted(fits)])
        needed = (q + 3) * math.log(max(curator.n_rows, 2))
        found = {"starts": tuple(map(lines, starts)), "plain": lines(plain), "path": path, "needed": needed}
        return replace(state, notes={**notes, **found})


@dataclass(frozen=True)
class ChooseStart(Step):
    """Which start is likelier: those of the cells, or the one line with several spreads, which needs no direction."""

    margin: float = 0.02

    def describe(self) -> str:
        return "which of the starts is likelier"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        notes = state.notes
        question = LineLeads(model.schema, notes["frame"], notes["starts"], notes["plain"])
        leads = curator.measure(question, self.rho)
        best = int(np.argmax(leads))
        ahead = leads[best] > self.margin + curator.noise_scale(question, self.rho)
        start = notes["starts"][best] if ahead else notes["plain"]
        return replace(state, notes={**notes, "estimate": newton.Estimate.of_start(start), "by_cells": bool(ahead)})


@dataclass(frozen=True)
class ImproveLines(Step):
    """A regularised Newton step on the scores of the lines; where nothing is noisy, as many as it takes.

    Scores are clipped at ``reach``·√(d + 1), squared residuals at ``cut``², both in a class's own spreads.
    """

    reach: float = 1.2
    cut: float = 2.5
    most_rounds: ClassVar[int] = 1000

    def describe(self) -> str:
        return "scores of the lines, for a Newton step"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        notes = state.notes
        frame: Frame = notes["frame"]
        now: newton.Estimate = notes["estimate"]
        free = newton.free_directions(now.theta, model.fixed(frame))
        exact = not math.isfinite(self.rho)
        clip = WIDE if exact else self.reach * math.sqrt(now.theta.shape[1])
        cut = 1e3 if exact else self.cut
        caution, miss = (1.0, math.inf) if exact else (newton.CAUTION, 0.0)
        for _ in range(self.most_rounds if exact else 1):
            question = LineScores(model.schema, frame, now.theta, clip, cut)
            answer = curator.measure(question, self.rho)
            noise = curator.noise_scale(question, self.rho)
            if exact:
                now = newton.Estimate.of_start(now.theta)
                far = float(np.linalg.norm(answer - question.expected()))
                caution, miss = (caution / 2 if far < miss else min(1.0, 3 * caution + 0.01)), far
            now, step = newton.improved(now, question, answer, noise, free, caution)
            if newton.converged(step):
                break
        last = LineScores(model.schema, frame, now.theta, clip, cut)
        theta = model.parameters(notes, now, newton.sampling_error(last, free, curator.n_rows))
        return replace(state, theta=theta, notes={**notes, "estimate": now})
