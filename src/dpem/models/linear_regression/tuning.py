"""The numbers of the linear regression that were set by trial, each with the study that set it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Set on simulated rows and on the tables marked ``tuning`` in ``studies/linear_regression_tables.py``, with seeds
    below 1000. A fit never changes them. Shares are fractions of the whole price ρ.
    """

    # --- columns (studies.linear_regression_tables, simulated histograms) -------------------------------------------
    #: A column is left out if it is observed in a smaller share of rows.
    rarely_seen: float = 0.05
    #: Bounds are called too wide if two adjacent bins have a larger share of the rows.
    crowded: float = 0.9
    #: A response with bounds 0 and 1 counts as binary if a larger share of it lies at the bounds.
    binary_response: float = 0.9
    #: A numeric column is lopsided if a larger share of its rows lies at one bound and most others at the other; its
    #: spread is set so that these others are at most ``reach`` spreads from the centre.
    lopsided: float = 0.75
    reach: float = 3.3
    #: A level is too rare to estimate if its share is less than this multiple of the noise.
    rare_level: float = 3.5

    # --- moments and first coefficients -----------------------------------------------------------------------------
    #: Least mean square of the correlations when they are shrunk.
    least_correlation: float = 0.01
    #: Clip of a row in the moments, over √(p + 2), its root mean squared length.
    moment_radius: float = 0.9
    #: The variance, or the information, of a column that lies in two bins is hidden below this multiple of its noise.
    hidden_spread: float = 2.5
    #: The slope of such a column may be shrunk if a row has less information about it.
    crowded_information: float = 0.04
    #: Standard deviation of the first coefficients' error from clipping the moments.
    first_error: float = 0.05
    #: Fraction of the variance that columns are expected to explain, and the prior variance of p standardised
    #: coefficients together.
    explained: float = 0.4
    prior: float = 3.0
    #: Least error variance after the moments, and its least ratio to the previous one in a step.
    least_variance: float = 0.05
    least_ratio: float = 0.3

    # --- clips (studies.linear_regression_tables) -------------------------------------------------------------------
    #: Usual standard deviation of the logarithm of a row's length.
    length_spread: float = 0.3
    #: Prior of the power with which the share of long scores falls with length: median 1 + 1/(mean + slope·share), and
    #: standard deviation of its logarithm.
    tail_mean: float = 0.5
    tail_slope: float = 12.0
    tail_spread: float = 0.4
    #: Fraction of the clipped part of normal scores that does not cancel, as relations are curved and variances
    #: unequal.
    not_cancelled: float = 0.2
    #: Prior standard deviations of the mean of the clipped part over its mean length: along the fitted values, and,
    #: times √k, of each slope and of the intercept. The scales multiply them and are equally likely.
    tails_fitted: float = 0.4
    tails_slope_sd: float = 0.35
    tails_intercept: float = 0.65
    tails_scales: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0)
    #: Relative change of that mean between scores of moderate and of great length; its share of the price of the tails;
    #: and the noise at which it is measured from longer scores.
    tails_vary: float = 0.5
    direction_share: float = 0.4
    direction_noise: float = 0.1
    #: Last release of the residuals' mean and mean square: least and largest clip, and the noise that sets it between.
    level_clips: tuple[float, float] = (3.5, 40.0)
    level_noise: float = 0.03

    # --- steps ------------------------------------------------------------------------------------------------------
    #: Share of a step's price for the scale of the residuals, and their clip in standard deviations.
    size_share: float = 0.06
    size_clip: float = 2.0
    #: Standard deviation, times √k, of an entry of the information around that of normal rows; least eigenvalue.
    not_normal: float = 0.16
    least_information: float = 1e-3
    #: A direction is scaled down if the information along it exceeds 1 by this multiple of the noise's edge and by this
    #: much.
    long_direction: float = 3.0
    least_long: float = 0.5
    #: Multiple of its noise by which the information along a direction may be overestimated.
    information_noise: float = 1.0

    # --- standard errors (studies.linear_regression_tables, tuning tables) ------------------------------------------
    #: Sandwich: least clip of residuals, relative noise up to which the clip may grow, and clip of rows over their
    #: usual length.
    least_variance_clip: float = 2.0
    variance_noise: float = 0.15
    variance_radius: float = 1.5
    #: Prior standard deviation of the relative excess of a score's variance over that with equal error variances.
    usual_excess: float = 0.5
    #: A near-null direction is reported if it may add this fraction of the error variance; its columns are those with
    #: at least this fraction of its largest loading.
    undecided: float = 0.01
    loading: float = 0.35
    #: Relative standard deviation of the error variance around that of clipped residuals; the variance beyond a last
    #: clip at 3.5 standard deviations over the variance between the two clips.
    variance_relative_sd: float = 0.3
    beyond_clip: float = 2.0
    #: Error of the slopes from imputation, relative to their length, at a missing share of 1.
    imputation: float = 0.03
    #: Share of a column's values that may be missing without a warning, as in generalised linear models.
    often_missing: float = 0.2
    #: Standard deviation of a row's contribution to the curvature and to the heteroscedasticity.
    linearity_spread: float = 1.1
    #: Error of R² from clipping, and the error above which R² is called unknown.
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
    tails_share: tuple[float, float] = (0.08, 0.13)
    level: tuple[float, float] = (0.03, 0.06)
    variance: float = 0.015
    #: Relative prices of the score steps, and how many of them come before the tails are released.
    growth: tuple[float, ...] = (0.6, 1.0, 1.6, 2.6, 4.0)
    steps_before_tails: int = 2
    #: Noise to which shares follow: of a share in the histogram of a column, and, times the number of coordinates, of
    #: one with many levels; of second moments, from which on their share exceeds the usual one, or falls below it; and
    #: of a share of the scores' tails.
    share_noise: float = 0.02
    level_noise_ratio: float = 0.1
    moment_noise: float = 0.05
    accurate_moment_noise: float = 0.012
    tail_noise: float = 0.0005

    # --- choice of columns (studies.linear_regression wide) ---------------------------------------------------------
    #: Shares of: middle of the response, choice, columns, moments, information, tails, level, variance, score steps.
    wide: tuple[float, ...] = (0.03, 0.45, 0.08, 0.25, 0.04, 0.10, 0.03, 0.01, 0.13)
    #: Largest number of rounds of choices, and chosen over finally retained columns.
    rounds: int = 5
    surplus: float = 1.3
    #: Rows that the choice of one column needs, times √(2ρ).
    rows_per_column: float = 65.0

    # --- prediction (studies.calibration.sweep) ---------------------------------------------------------------------
    #: Public tables at ε from 0.5 to 4: the median loss of R² is this power of the predicted one; one table in ten
    #: loses more than this multiple of it (ε = 1).
    real_power: float = 0.8
    real_range: float = 12.0


TUNING = Tuning()
