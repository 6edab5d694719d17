"""A report is one string: no file is loaded, and only the script in it runs, which sorts and copies tables.

*Lemma.* A report is covered by the guarantee of the fit. *Proof.* It is a function of the fitted attributes, which are
released or public (docs/privacy.md), and of nothing else: :func:`render` takes no rows. Post-processing is free. ∎
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem import _html
from dpem._files import write_text
from dpem._html import capital, measured, number, percent
from dpem._validation import ArgumentError
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import Estimates, FitSummary, Profile
from dpem.persistence import fingerprint
from dpem.report import charts, facts
from dpem.report.facts import About

#: Rows above which a table is folded away.
FOLDED = 12

#: What each part of an interval is, in a line.
CONTAINS = {
    "sampling": ("Sampling error", "what other rows of the same population would change"),
    "privacy": ("Privacy noise", "what the noise added for privacy changes; its size is known"),
    "misfit": ("Misfit", "what clipping may hide and the rows leave undecided"),
}


def render(model: PrivateFit, scaler: DPStandardScaler | None = None, about: About | None = None) -> str:
    """The report of a fitted estimator as a page of HTML.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of this package that is a model of rows.
    scaler : DPStandardScaler, optional
        What the model was fitted behind; the page then states what both guarantee together.
    about : About, optional
        Dataset, date, purpose and ledger, for the first screen.

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
        raise ValueError(f"a report is made of a fitted model; got {type(model).__name__}.")
    check_is_fitted(model)
    if scaler is not None and getattr(model, "scaler_", None) not in (None, fingerprint(scaler)):
        raise ArgumentError("scaler", "must be the one that the model was fitted with; its file names another.")
    summary, digest, about = model._fit_summary(), _fingerprint(model), about or About()
    private = model.guarantee_.private
    heading = f"{capital(summary.name)} fitted {'under differential privacy' if private else 'WITHOUT privacy'}"
    state = about.state
    metas = (("model", digest), ("dataset", about.dataset), ("head", state and state.head))
    return _html.page(
        "report.html",
        style=_html.source("style.css"),
        script=_html.source("page.js"),
        metas=[(name, value) for name, value in metas if value],
        title=heading if private else f"NOT PRIVATE: {heading}",
        heading=heading,
        summary=summary,
        about=about.lines(),
        state=state,
        left=about.left,
        fingerprint=digest,
        estimator=type(model).__name__,
        paper=type(model).__module__.startswith("dpem.paper"),
        plan=str(model.plan_),
        noise=None if model.plan_.feasible else model.plan_.advice,
        settings=[(s.name, _value(s.value), s.origin) for s in summary.settings],
        **_extra(summary),
        check=getattr(model, "fit_check_", None),
        diagnostics=_diagnostics(model),
        components=None if summary.profile is None else _components(summary.profile),
        estimates=None if summary.estimates is None else _estimates(summary.estimates, summary),
        **facts.statement(model, summary, scaler),
        **_prices(model),
        **facts.outcome(model),
    )


def write_report(
    model: PrivateFit, path: str | os.PathLike[str], scaler: DPStandardScaler | None = None, about: About | None = None
) -> None:
    """Write the report of a fitted estimator to ``path``, whole or not at all; see :func:`render`."""
    write_text(path, render(model, scaler, about))


def _fingerprint(model: PrivateFit) -> str | None:
    """The fingerprint of a model that can be written to a file; one of the user's own making has none."""
    try:
        return fingerprint(model)
    except ValueError:
        return None


def _extra(summary: FitSummary) -> dict[str, Any]:
    """The model's further table, and its picture where it has one."""
    found = summary.extra
    drawn = None if found is None or found.calibration is None else charts.calibration_picture(found.calibration)
    digits = 5 if drawn is None else 3
    rows = [] if found is None else [[_value(cell, digits) for cell in row] for row in found.rows]
    return {"extra_rows": rows, "calibration": drawn}


def _diagnostics(model: PrivateFit) -> list[Any] | None:
    """What the fit warns of, warnings first. What the fit check says has a place of its own."""
    found = getattr(model, "diagnostics_", None)
    if found is None:
        return None
    return sorted((one for one in found if one.code != "fit-check"), key=lambda one: one.severity != "warning")


def _estimates(found: Estimates, summary: FitSummary) -> dict[str, Any]:
    """The pictures and the table of the parameters, in units and standardised."""
    apart = found.scale is None and summary.profile is not None  # shares, centres, spreads: no picture holds them all
    many = len(found.names)
    shares = [dict(found.parts(j)) for j in range(many)]
    known = any(shares)
    rows = [_row(found, j, known) for j in range(many)]
    head = [found.what, "estimate", "95 % interval", "standard error", *(["made of"] if known else [])]
    if known:
        medians = {kind: float(np.median([own[kind] for own in shares if own])) for kind in CONTAINS}
        contains = [
            {
                "kind": kind,
                "name": name,
                "words": f"{capital(words)}. Median {100 * medians[kind]:.0f} % of the variance.",
            }
            for kind, (name, words) in CONTAINS.items()
            if medians[kind] > 0 or kind != "misfit"
        ]
    elif (found.error > 0).any():
        contains = [
            {"kind": "privacy", "name": "Privacy noise of the last step", "words": "Its size is known."},
            {"kind": "", "name": "Not sampling error", "words": "To estimate it would cost budget."},
        ]
    else:
        contains = [{"kind": "", "name": "Nothing", "words": "No noise was added, so there are no intervals."}]
    return {
        "what": found.what,
        "pictures": [] if apart else charts.estimate_pictures(found),
        "contains": contains,
        "note": found.note and capital(found.note.rstrip(".")) + ".",
        "head": head,
        "rows": rows,
        "fold": many > (charts.DRAWN if apart else FOLDED),
    }


def _row(found: Estimates, j: int, parted: bool) -> dict[str, Any]:
    error, value, low, high = (float(p[j]) for p in (found.error, found.value, found.low, found.high))
    scale = 1.0 if found.scale is None else float(found.scale[j])

    def shown(unit: float) -> tuple[str, str, str]:
        e, v, a, b = (unit * part for part in (error, value, low, high))
        if not error > 0:
            return number(v, 5), "none", "none"
        return measured(v, e), f"{measured(a, e)} to {measured(b, e)}", number(e, 2)

    sorts = (value, low, error)
    other = shown(scale) if scale != 1.0 else ("", "", "")
    cells = [{"text": t, "other": o, "sort": s} for t, o, s in zip(shown(1.0), other, sorts, strict=True)]
    parts, start = [], 0.0
    shares = found.parts(j) or [("sampling", 0.0), ("privacy", 0.0), ("misfit", 0.0)]
    for kind, share in shares:
        parts.append({"kind": kind, "start": f"{start:.1f}", "width": f"{100 * share:.1f}", "share": share})
        start += 100 * share
    words = ", ".join(f"{kind} {percent(share)}" for kind, share in shares)
    return {"name": found.names[j], "cells": cells, "parts": parts if parted else [], "parts_words": words}


def _components(profile: Profile) -> dict[str, Any]:
    """A picture of each component and a table of all."""
    unit = profile.labels[0].rpartition(" ")[0] or "component"
    if profile.bars:
        note = "A bar is the probability, from 0 to 100 %; grey marks are the others."
    elif profile.spread is None:
        note = f"A dot is this {unit}’s; grey marks are the others."
    else:
        note = "A dot is the centre, the bar one standard deviation around it, over the column’s public bounds; "
        note += "grey marks are the others’ centres."
    if len(profile.columns) > charts.COLUMNS:
        note += f" The {charts.COLUMNS} columns that differ most are drawn."
    panels = [
        {
            "id": f"component-{k + 1}",
            "title": f"{name}: {percent(float(profile.share[k]))} of the rows",
            "words": f"What is typical of {name}. The table below has every number.",
            "rows": charts.component_rows(profile, k),
        }
        for k, name in enumerate(profile.labels)
    ]
    rows = [
        (name, *(charts.cell(profile, k, j) for k in range(len(profile.labels))))
        for j, name in enumerate(profile.columns)
    ]
    return {
        "heading": f"The {unit}{'es' if unit.endswith('s') else 's'}",
        "unit": unit,
        "panels": panels,
        "note": note,
        "head": ("column", *profile.labels),
        "rows": rows,
        "numeric": range(1, len(profile.labels) + 1),
    }


def _prices(model: PrivateFit) -> dict[str, Any]:
    queries, rho = facts.queries(model), model.guarantee_.price.rho
    paid = math.isfinite(rho)
    bill = facts.bill(queries) if paid else []

    def share(part: float) -> str:
        return percent(part) if paid else "–"

    groups = [
        (
            _span([query.place for query in group]),
            group[0].release.query,
            f"{len(group)}",
            group[0].release.mechanism.replace("-", "\N{NON-BREAKING HYPHEN}") if paid else "exact",
            number(math.fsum(query.release.price.rho for query in group)),
            share(math.fsum(query.share for query in group)),
        )
        for group in facts.grouped(queries)
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
        "paid": paid,
        "rho": rho,
        "bill": charts.price_bar(bill),
        "bill_words": "; ".join(f"query {part.place}, {percent(part.share)}" for part in bill),
        "batches": len(bill) < len(queries),
        "kinds": len({part.kind for part in bill}),
        "query_groups": groups,
        "queries": rows,
    }


def _span(places: list[int]) -> str:
    """Numbers in few signs.

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
