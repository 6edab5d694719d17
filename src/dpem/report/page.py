"""A report is one string: no file is loaded, no script runs, nothing is fetched.

*Lemma.* A report is covered by the guarantee of the fit. *Proof.* It is a function of the fitted attributes, which are
released or public (docs/privacy.md), and of nothing else: :func:`render` takes no rows. Post-processing is free. ∎
"""

from __future__ import annotations

import os

from sklearn.utils.validation import check_is_fitted

from dpem._files import write_text
from dpem.estimators import DPStandardScaler
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.estimators.base import PrivateEM
from dpem.persistence import fingerprint
from dpem.report import sections
from dpem.report.facts import MODELS
from dpem.report.style import STYLE

_KINDS = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)

#: Whatever slipped in, a browser that reads this loads nothing and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render(model: PrivateEM, scaler: DPStandardScaler | None = None) -> str:
    """The report of a fitted estimator as a page of HTML, with what the scaler before it released, if there was one.

    >>> import numpy as np
    >>> from dpem.paper import DPSymmetricMixture
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.choice([-1, 1], size=(2000, 1)) * np.array([0.8, 0.6]) + 0.5 * rng.standard_normal((2000, 2))
    >>> model = DPSymmetricMixture(epsilon=1.0, delta=1e-5, sigma=0.5).fit(Y)
    >>> page = render(model)
    >>> "NOT PRIVATE" in page, "<script" in page
    (False, False)
    """
    if not isinstance(model, _KINDS):
        kinds = ", ".join(kind.__name__ for kind in _KINDS)
        raise ValueError(f"a report is made of a fitted {kinds}; got {type(model).__name__}.")
    check_is_fitted(model)
    if scaler is not None and model.scaler_ not in (None, fingerprint(scaler)):
        raise ValueError("scaler must be the one that the model was fitted behind; its file names another.")
    private = model.guarantee_.private
    name = MODELS[model.plan_.model]
    title = f"{name[0].upper()}{name[1:]} fitted {'under differential privacy' if private else 'WITHOUT privacy'}"
    last = "Nothing here was computed from the rows without a price." if private else "This fit is not private."
    body = "\n".join(
        part
        for part in (
            sections.banner(model),
            f"<header>\n<h1>{title}</h1>\n{sections.verdict(model)}\n</header>",
            sections.promise(model),
            sections.scaled(model, scaler),
            sections.asked(model),
            sections.coefficients(model),
            sections.components(model),
            sections.predicted(model),
            sections.chosen(model),
            sections.limits(model),
            sections.citation(model, fingerprint(model)),
        )
        if part
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{'' if private else 'NOT PRIVATE: '}{title}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n<footer><p>{last} This page loads nothing and runs no "
        "script.</p></footer>\n</main>\n</body>\n</html>\n"
    )


def write_report(model: PrivateEM, path: str | os.PathLike[str], scaler: DPStandardScaler | None = None) -> None:
    """Write the report of a fitted estimator to ``path``, whole or not at all. A scaler whose output the model was
    fitted to is given too: what both promise together is then stated.
    """
    write_text(path, render(model, scaler))
