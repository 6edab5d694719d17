"""The numbers of a report; its words are in the template. The page loads no file.

*Lemma.* The guarantee of the fit covers the report. *Proof.* It is a function of the fitted attributes, which are
released or public (docs/privacy.md), and of nothing else: :func:`render` takes no rows. Post-processing is free. ∎
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem import _html
from dpem._files import write_text
from dpem._html import capital, number, percent, round_to
from dpem._validation import ArgumentError
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import Estimates, FitSummary
from dpem.persistence import fingerprint
from dpem.privacy import together
from dpem.report import charts, facts
from dpem.report.facts import About

#: Rows above which a table is folded away.
FOLDED = 12


def render(model: PrivateFit, scaler: DPStandardScaler | None = None, about: About | None = None) -> str:
    """The report of a fitted estimator as an HTML page.

    Parameters
    ----------
    model : estimator
        Any fitted model of this package.
    scaler : DPStandardScaler, optional
        The scaler to whose output the model was fitted; the page then states the joint guarantee.
    about : About, optional
        The dataset, date, purpose and ledger, shown at the top.

    Examples
    --------
    >>> import numpy as np
    >>> from dpem.paper import DPSymmetricMixture
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.choice([-1, 1], size=(2000, 1)) * np.array([0.8, 0.6]) + 0.5 * rng.standard_normal((2000, 2))
    >>> model = DPSymmetricMixture(epsilon=1.0, delta=1e-5, sigma=0.5).fit(Y)
    >>> page = render(model)
    >>> "NOT PRIVATE" in page, "https://" in page
    (False, False)
    """
    if not hasattr(model, "_fit_summary"):
        raise ValueError(f"model must be a fitted model of dpem, got {type(model).__name__}.")
    check_is_fitted(model)
    if scaler is not None and getattr(model, "scaler_", None) not in (None, fingerprint(scaler)):
        raise ArgumentError("scaler", "must be the one that the model was fitted with; its file names another.")
    summary, about, digest = model._fit_summary(), about or About(), None
    with suppress(ValueError):  # a model that cannot be written to a file has no fingerprint
        digest = fingerprint(model)
    metas = (("model", digest), ("dataset", about.dataset), ("head", about.state and about.state.head))
    guarantee = model.guarantee_
    joint = guarantee if scaler is None else together([scaler.guarantee_, guarantee])
    heading = (
        f"{capital(summary.name)} fitted {'under differential privacy' if guarantee.private else 'WITHOUT privacy'}"
    )
    return _html.page(
        "report.html",
        style=_html.source("style.css"),
        script=_html.source("page.js"),
        metas=[(name, value) for name, value in metas if value],
        title=heading if guarantee.private else f"NOT PRIVATE: {heading}",
        heading=heading,
        model=model,
        estimator=type(model).__name__,
        paper=type(model).__module__.startswith("dpem.paper"),
        fingerprint=digest,
        plan=model.plan_,
        check=model.fit_check_,
        diagnostics=[
            diagnostic  # the fit check itself is shown above
            for severity in ("warning", "note")
            for diagnostic in model.diagnostics_
            if diagnostic.severity == severity and str(diagnostic) != str(model.fit_check_)
        ],
        summary=summary,
        components=summary.profile and charts.components(summary.profile),
        estimates=None if summary.estimates is None else _estimates(summary.estimates, summary),
        extra=_extra(summary),
        settings=[(s.name, _value(s.value), s.origin) for s in summary.settings],
        outcome=facts.outcome(model),
        prices=_prices(model),
        about=about,
        scaler=scaler,
        unscaled=getattr(model, "scaler_", None) if scaler is None else None,
        guarantee=guarantee if scaler is None else joint,
        joint=joint,
        epsilon=number(facts.rounded_up(joint.epsilon), 5),
        factor=number(math.exp(min(joint.epsilon, 700.0)), 4),
        guesses=facts.guess_rate(joint.epsilon, joint.delta),
    )


def write_report(
    model: PrivateFit, path: str | os.PathLike[str], scaler: DPStandardScaler | None = None, about: About | None = None
) -> None:
    """Write the report of a fitted estimator to ``path``, as a whole or not at all; see :func:`render`."""
    write_text(path, render(model, scaler, about))


class Table(NamedTuple):
    """A further table of the model, with its calibration plot if it has one."""

    rows: list[list[str]]
    calibration: charts.ScatterPlot | None


def _extra(summary: FitSummary) -> Table | None:
    if (extra := summary.extra) is None:
        return None
    picture = None if extra.calibration is None else charts.calibration_picture(extra.calibration)
    digits = 5 if picture is None else 3
    return Table([[_value(cell, digits) for cell in row] for row in extra.rows], picture)


def _estimates(estimates: Estimates, summary: FitSummary) -> dict[str, object]:
    """The pictures and the table of the parameters, in the table's units and standardised."""
    separate = estimates.scale is None and summary.profile is not None  # the pictures of components suffice
    count = len(estimates.names)
    shares = [parts for j in range(count) if (parts := dict(estimates.parts(j)))]
    medians = {kind: float(np.median([parts[kind] for parts in shares])) for kind in (shares[0] if shares else ())}
    return {
        "facts": estimates,
        "pictures": [] if separate else charts.estimate_pictures(estimates),
        "medians": medians,
        "rows": [_row(estimates, j, bool(shares)) for j in range(count)],
        "fold": count > (charts.DRAWN if separate else FOLDED),
    }


def _row(estimates: Estimates, j: int, parted: bool) -> dict[str, object]:
    error, value, low, high = (float(p[j]) for p in (estimates.total, estimates.estimate, *estimates.ends))
    scale = 1.0 if estimates.scale is None else float(estimates.scale[j])

    def in_unit(unit: float) -> tuple[str, str, str]:
        e, v, a, b = (unit * part for part in (error, value, low, high))
        if not error > 0:
            return number(v, 5), "none", "none"
        return round_to(v, e), f"{round_to(a, e)} to {round_to(b, e)}", number(e, 2)

    other = in_unit(scale) if scale != 1.0 else ("", "", "")
    parts, start = [], 0.0
    shares = estimates.parts(j) or [("sampling", 0.0), ("privacy", 0.0), ("misfit", 0.0)]
    for kind, share in shares:
        parts.append({"kind": kind, "start": f"{start:.1f}", "width": f"{100 * share:.1f}", "share": share})
        start += 100 * share
    words = ", ".join(f"{kind} {percent(share)}" for kind, share in shares)
    cells = list(zip(in_unit(1.0), other, (value, low, error), strict=True))
    return {"name": estimates.names[j], "cells": cells, "parts": parts if parted else [], "parts_words": words}


def _prices(model: PrivateFit) -> dict[str, object]:
    queries, rho = facts.queries(model), model.guarantee_.price.rho
    paid = math.isfinite(rho)
    charged = facts.charged_queries(queries) if paid else []

    def share(part: float) -> str:
        return percent(part) if paid else "–"

    groups: dict[tuple[str, str], list[facts.Query]] = {}
    for query in queries:
        groups.setdefault((query.release.query, query.release.mechanism), []).append(query)
    grouped = [
        (
            _span([query.place for query in group]),
            words,
            f"{len(group)}",
            mechanism.replace("-", "\N{NON-BREAKING HYPHEN}") if paid else "exact",
            number(math.fsum(query.release.price.rho for query in group)),
            share(math.fsum(query.share for query in group)),
        )
        for (words, mechanism), group in groups.items()
    ]
    rows = [
        (
            f"{q.place}",
            q.release.query,
            number(q.release.price.rho),
            share(q.share),
            number(q.release.scale),
            f"{q.release.n_rows:,}" + ("" if q.release.batch is None else f" (batch {q.release.batch + 1})"),
        )
        for q in queries
    ]
    return {
        "rho": rho if paid else None,
        "charged": charged,
        "bar": charts.price_bar(charged),
        "batches": len(charged) < len(queries),
        "groups": grouped,
        "rows": rows,
    }


def _span(places: list[int]) -> str:
    """The numbers as a short text.

    >>> _span([3]), _span([1, 2, 3]), _span([1, 4])
    ('3', '1–3', '1, 4')
    """
    if len(places) > 2 and places == list(range(places[0], places[-1] + 1)):
        return f"{places[0]}–{places[-1]}"
    return ", ".join(map(str, places if len(places) < 6 else [*places[:4], "…"]))


def _value(value: str | float | int, digits: int = 4) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return number(value, digits) if isinstance(value, float) else str(value)
