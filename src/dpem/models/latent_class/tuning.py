"""Numbers that studies have set, not the user. Unless another is named, the study is
``python -m studies.latent_class --tables tuning``: the half of the public tables that is not reported on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Settings of the fit of latent classes.

    Attributes
    ----------
    pairs : float
        The part of ρ (less the fit check's) that the pairs of answers get; .30 to .60 differ by less than .01 of the
        lead kept.
    scores : int
        Score queries; 2 to 6 differ by less than .01.
    growth : float
        How many times a score query's price exceeds the one before it.
    level : float
        The quantile of the scores' norms at which they are clipped; .80 to .95 make no difference.
    ridge : float
        Added to the information before whitening.
    floor : float
        The least probability; with 1e-4 probabilities are further off, .061 instead of .047.
    pseudo : float
        Rows with the overall probabilities that are added to every class, in units of the noise of sums by class.
    most_cells, drawn : int
        Up to so many cells all possible rows are surrogate rows; beyond, so many are drawn.
    redraws : int
        How often drawn rows are drawn again, from ``drawn_classes`` classes fitted to them.
    model_part : float
        The part of the fitted classes in base weights, where these suit the answers; the rest is independent answers.
    components : int
        Principal components to which the features of a block of answers are reduced.
    restarts : int
        Random starts of EM after each query, beside the classes that were found before it.
    repeats : int
        How often the queries are asked again of the surrogate rows, to see what noise does.
    pooled : float
        How many repeats the linear approximation of a standard error counts for.
    widening : float
        By how much standard errors due to privacy exceed what the repeats show: the surrogate rows are not the table.
    moving : float
        By how much the noise is taken larger where it is seen how many rows it puts into another class.
    clamp : float
        Where a row's lead over independent answers is clamped in the fit check: with 1, classes that are worse than
        independent answers could pass.
    unstable : float
        Classes are called unstable if the noise puts more than this share of rows into another class.
    """

    pairs: float = 0.35
    scores: int = 3
    growth: float = 1.3
    level: float = 0.85
    ridge: float = 0.002
    floor: float = 1e-3
    pseudo: float = 0.3
    most_cells: int = 4096
    drawn: int = 4000
    redraws: int = 2
    drawn_classes: int = 8
    model_part: float = 0.95
    components: int = 150
    restarts: int = 8
    repeats: int = 8
    pooled: float = 8.0
    widening: float = 1.15
    moving: float = 1.3
    clamp: float = 3.0
    unstable: float = 0.03


TUNING = Tuning()
