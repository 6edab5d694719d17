"""The theorems' constants and rates."""

import math

import pytest

from studies.paper import theory

SIZES = {"n": 10_000, "d": 500, "s": 8, "epsilon": 0.5, "delta": 1e-5}
MODELS = ("symmetric-mixture", "symmetric-regression", "missing-regression")


def test_the_sparsity_of_theorems_4_2_and_4_4():
    """100/9 and 4·33²/31² are printed there; they are 4(1 + L)²/(1 − L)² at the radii of Lemmas 4.1 and A.1."""
    for model, printed in (("symmetric-mixture", 100 / 9), ("symmetric-regression", 4 * 33**2 / 31**2)):
        assert theory.required_sparsity(1, kappa=0.01, L=theory.RADIUS[model]) == pytest.approx(printed)
    assert theory.required_sparsity(3, kappa=0.9, L=0.01) == pytest.approx(3 * 16 * 81)


def test_kappa_is_gamma_in_all_three_models():
    assert theory.contraction(1.0, 1.0, 0.37) == pytest.approx(0.37)
    assert theory.contraction(3.0, 1.0, 0.5) == pytest.approx(0.75)


def test_missing_entries_contract_exactly_below_the_lemma_s_share():
    limit = theory.largest_missing_share(1.3, 0.2)
    assert theory.missing_contraction(0.999 * limit, 1.3, 0.2) < 1 < theory.missing_contraction(1.001 * limit, 1.3, 0.2)


@pytest.mark.parametrize("s", [8, None])
@pytest.mark.parametrize("model", MODELS)
def test_upper_is_above_lower_by_logarithms(model, s):
    sizes = {**SIZES, "s": s}
    upper, lower = theory.upper_rate(model, **sizes), theory.lower_rate(model, **sizes)
    logs = math.log(SIZES["n"]) ** 1.5 * math.sqrt(math.log(1 / SIZES["delta"]))
    for over, under in zip(upper, lower, strict=True):
        assert under < over <= under * logs * (1 + 1e-12)


@pytest.mark.parametrize("s", [8, None])
@pytest.mark.parametrize("model", MODELS)
def test_e10_the_noise_has_the_order_of_the_corrected_privacy_term(model, s):
    """N₀ = log n and T = √log n: noise over rate is the same at every n; over the printed one it grows by √log n."""
    ratios = {True: [], False: []}
    for n in (10**4, 10**8):
        sizes = {"n": n, "d": 500, "s": s, "epsilon": 0.5, "delta": 1e-5}
        at = {"n_iter": math.log(n), "T": math.sqrt(math.log(n)), "step": 0.5}
        for printed, found in ratios.items():
            rate = theory.upper_rate(model, **sizes, as_printed=printed).privacy
            found.append(theory.noise_floor(model, **sizes, **at) / rate)
    assert ratios[False][0] == pytest.approx(ratios[False][1])
    growth = 1.0 if model == "symmetric-mixture" else math.sqrt(2.0)  # √(log 10⁸/log 10⁴)
    assert ratios[True][1] / ratios[True][0] == pytest.approx(growth)
