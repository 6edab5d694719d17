"""A report is one string: no file is loaded, no script runs, nothing is fetched.

*Lemma.* A report is covered by the guarantee of the fit. *Proof.* It is a function of the fitted attributes, which are
released or public (docs/privacy.md), and of nothing else: :func:`render` takes no rows. Post-processing is free. ∎
"""

from __future__ import annotations

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from dpem._files import write_text
from dpem._html import text
from dpem.fitting.scaler import DPStandardScaler
from dpem.persistence import fingerprint
from dpem.report import sections
from dpem.report.facts import About
from dpem.report.style import STYLE

#: Whatever slipped in, a browser that reads this loads nothing and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render(model: Any, scaler: DPStandardScaler | None = None, about: About | None = None) -> str:
    """The report of a fitted estimator as a page of HTML.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of this package that is a model of rows.
    scaler : DPStandardScaler, optional
        What the model was fitted behind; the page then states what both promise together.
    about : About, optional
        Dataset, date, purpose and ledger, for the first screen.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from dpem.paper import DPSymmetricMixture
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.choice([-1, 1], size=(2000, 1)) * np.array([0.8, 0.6]) + 0.5 * rng.standard_normal((2000, 2))
    >>> model = DPSymmetricMixture(epsilon=1.0, delta=1e-5, sigma=0.5).fit(Y)
    >>> page = render(model)
    >>> "NOT PRIVATE" in page, "<script" in page
    (False, False)
    """
    if not hasattr(model, "_fit_summary"):
        raise ValueError(f"a report is made of a fitted model; got {type(model).__name__}.")
    check_is_fitted(model)
    digest = _fingerprint(model)
    if scaler is not None and getattr(model, "scaler_", None) not in (None, fingerprint(scaler)):
        raise ValueError("scaler must be the one that the model was fitted behind; its file names another.")
    private, summary = model.guarantee_.private, model._fit_summary()
    how = "under differential privacy" if private else "WITHOUT privacy"
    title = f"{text(summary.name[:1].upper() + summary.name[1:])} fitted {how}"
    last = "Nothing here was computed from the rows without a price." if private else "This fit is not private."
    body = "\n".join(
        part
        for part in (
            sections.banner(model.guarantee_),
            f"<header>\n<h1>{title}</h1>\n{sections.opening(model, summary, scaler, about or About())}\n</header>",
            sections.groups(summary),
            sections.estimates(summary),
            sections.extra(summary),
            sections.asked(model),
            sections.predicted(model, summary),
            sections.promise(model, scaler),
            sections.limits(model, scaler),
            sections.chosen(model, summary),
            sections.citation(model, digest),
        )
        if part
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{_metas(digest, about)}"
        f"<title>{'' if private else 'NOT PRIVATE: '}{title}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n<footer><p>{last} This page loads nothing and runs no "
        "script.</p></footer>\n</main>\n</body>\n</html>\n"
    )


def write_report(
    model: Any, path: str | os.PathLike[str], scaler: DPStandardScaler | None = None, about: About | None = None
) -> None:
    """Write the report of a fitted estimator to ``path``, whole or not at all; see :func:`render`."""
    write_text(path, render(model, scaler, about))


def _metas(digest: str | None, about: About | None) -> str:
    """Facts for programs, such as ``dpem ledger verify``."""
    named = {"model": digest, "dataset": about and about.dataset, "head": about and about.state and about.state.head}
    return "".join(f'<meta name="dpem-{key}" content="{text(value)}">\n' for key, value in named.items() if value)


def _fingerprint(model: Any) -> str | None:
    """The fingerprint of a model that can be written to a file; one of the user's own making has none."""
    try:
        return fingerprint(model)
    except ValueError:
        return None
