"""The numbers of the linear regression that were set by trial, each with the study that set it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Set on simulated rows and on the tables marked ``tuning`` in ``studies/linear_regression_tables.py``, with seeds
    below 1000; never changed by a fit. Shares are of the whole price ρ.
    """

    # --- columns (studies.linear_regression_tables, simulated histograms) -------------------------------------------
    #: Share of rows with a value below which a column is left out.
    rarely_seen: float = 0.05
    #: Share in the two fullest adjacent bins above which bounds are called too wide.
    crowded: float = 0.9
    #: Share of a response's values at the ends of the bounds 0 and 1 above which it is taken for a 0/1 response.
    binary_response: float = 0.9
    #: A two-valued numeric column is lopsided above this share, and its far rows lie at most so many spreads away.
    lopsided: float = 0.75
    reach: float = 3.3
    #: Standard deviations of noise below which a level's share makes it too rare to estimate.
    rare_level: float = 3.5

    # --- moments and first coefficients -----------------------------------------------------------------------------
    #: Mean square that correlations have at least.
    least_correlation: float = 0.01
    #: Rows are clipped at so many times their expected length in the moments.
    moment_radius: float = 0.9
    #: Standard deviations of noise below which the variance, or the information, of a column in two bins of its
    #: histogram is hidden.
    hidden_spread: float = 2.5
    #: Information of a row along such a column below which its slope may be shrunk.
    crowded_information: float = 0.04
    #: Error of first coefficients because moments are clipped, whatever the noise: what counts where rows are many.
    first_error: float = 0.05
    #: Variance explained that is expected before anything is known, and the sum of the variances that standardised
    #: coefficients have before any release, in units of what they explain together.
    explained: float = 0.4
    prior: float = 3.0
    #: Least variance of the errors after the moments, and least ratio of its change in one step.
    least_variance: float = 0.05
    least_ratio: float = 0.3

    # --- clips (studies.linear_regression_tables) -------------------------------------------------------------------
    #: The usual spread of the logarithm of rows' lengths.
    length_spread: float = 0.3
    #: The share of long scores falls with the power 1 + 1/(mean + slope·share) of their length; the spread of that
    #: power on the log scale.
    tail_mean: float = 0.5
    tail_slope: float = 12.0
    tail_spread: float = 0.4
    #: What is cut off normal scores cancels but for this part, since relations are curved and variances unequal.
    uneven: float = 0.2
    #: The mean of what is cut off and does not cancel, over its mean length: standard deviation along the fitted
    #: values, and √k times that of each other slope and of the intercept; multiples of these, each as likely.
    tails_along: float = 0.4
    tails_beside: float = 0.35
    tails_level: float = 0.65
    tails_scales: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0)
    #: How much that direction varies between scores of moderate and of great length, as a part of it; the part of the
    #: price of the tails for it; and the noise it is to have.
    tails_vary: float = 0.5
    direction_share: float = 0.4
    direction_noise: float = 0.1
    #: Where the mean and size of residuals are released last: the nearest and farthest clip, and the noise to aim at.
    level_clips: tuple[float, float] = (3.5, 40.0)
    level_noise: float = 0.03

    # --- steps ------------------------------------------------------------------------------------------------------
    #: Part of a step's price for the size of residuals, and where these are clipped for it, in standard deviations.
    size_share: float = 0.06
    size_clip: float = 2.0
    #: How far the information of rows may be from that of normal ones, times √k for an entry of it, and its least value
    #: along any direction.
    not_normal: float = 0.16
    least_information: float = 1e-3
    #: A direction is long if the information along it exceeds that of normal rows by so many edges of its noise, and by
    #: such a part.
    long_direction: float = 3.0
    least_long: float = 0.5
    #: Standard deviations of noise that count against the information along a direction.
    information_noise: float = 1.0

    # --- standard errors (studies.linear_regression_tables, tuning tables) ------------------------------------------
    #: Squared residuals are clipped at least there for the sandwich, farther as long as its noise is below such a part;
    #: rows at so many times their usual length.
    least_variance_clip: float = 2.0
    variance_noise: float = 0.15
    variance_radius: float = 1.5
    #: The usual relative excess of a score's variance over that of errors of one variance.
    usual_inflation: float = 0.5
    #: A near-null direction is reported if it may add such a part of the errors' variance; its columns are those with
    #: such a part of its largest loading.
    undecided: float = 0.01
    loading: float = 0.35
    #: How far the variance may be, as a part of it, from what clipped residuals show, and what may lie beyond a last
    #: clip at 3.5 standard deviations as a part of what lies between it and the clip of the steps.
    tails: float = 0.3
    beyond: float = 2.0
    #: How far filling missing values moves slopes, as a part of all slopes, for each part of values missing.
    filling: float = 0.03
    #: The part of a column's values that may be missing without a warning; as for rows of generalised linear models.
    often_missing: float = 0.2
    #: Standard deviation of a row's part in curvature and in unequal variances.
    linearity_spread: float = 1.1
    #: Error of R² because squares are clipped, and the error beyond which it is called unknown.
    r_squared_error: float = 0.01
    unknown_r_squared: float = 0.5

    # --- prices (studies.linear_regression_tables, studies.linear_regression_simulated laws and levels) -----------
    #: Least and largest share of the histograms of columns; least, usual and largest share of the moments, and the
    #: information's share over that of the moments.
    columns: tuple[float, float] = (0.03, 0.08)
    moments: tuple[float, float, float] = (0.015, 0.04, 0.20)
    information: float = 0.25
    #: Share of the histogram of leverage over that of the information, and what is added to the information's share.
    lengths_share: float = 0.4
    lengths: float = 0.02
    #: Shares of the histogram and direction of the scores' tails and of the residuals' last mean, least and largest;
    #: share of the sandwich.
    residuals: tuple[float, float] = (0.08, 0.13)
    level: tuple[float, float] = (0.03, 0.06)
    variance: float = 0.015
    #: How the prices of the steps along the score grow; residuals are looked at after so many of them.
    growth: tuple[float, ...] = (0.6, 1.0, 1.6, 2.6, 4.0)
    early: int = 2
    #: Noise to which shares follow: of a share in the histogram of a column, and, times the number of coordinates, of
    #: one with many levels; of second moments, from which on their share exceeds the usual one, or falls below it; and
    #: of a share of the scores' tails.
    share_noise: float = 0.02
    level_noise_ratio: float = 0.1
    moment_noise: float = 0.05
    accurate_moment_noise: float = 0.012
    tail_noise: float = 0.0005

    # --- choice of columns (studies.linear_regression wide) ---------------------------------------------------------
    #: Shares of: middle of the response, choice, columns, moments, information, residuals, level, variance, steps.
    wide: tuple[float, ...] = (0.03, 0.45, 0.08, 0.25, 0.04, 0.10, 0.03, 0.01, 0.13)
    #: Columns are chosen in so many rounds at most, and so many times as many as are kept.
    rounds: int = 5
    over: float = 1.3
    #: Choosing a column takes this many rows for each unit of 1/√(2ρ).
    rows_per_column: float = 65.0

    # --- prediction (studies.calibration.sweep) ---------------------------------------------------------------------
    #: Half of the public tables lose more of R² than this power of the median that is predicted for rows of the model,
    #: at ε from 0.5 to 4, and one in ten so many times as much at ε = 1.
    real_power: float = 0.8
    real_range: float = 12.0


TUNING = Tuning()
