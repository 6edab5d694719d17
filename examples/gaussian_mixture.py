"""Two kinds of tumour, found without their labels: a private Gaussian mixture.

    python examples/gaussian_mixture.py

Data: Breast Cancer Wisconsin, 569 patients, shipped with scikit-learn. Each row has ten
measurements of cell nuclei. The fit is not told which tumours were malignant. We keep those
labels to see, at the end, whether the two groups that it found are the two diagnoses.

The example runs as a script, or cell by cell in an editor that knows ``# %%``. Its noise is
private, so the figures differ a little each time.
"""

# %% The table. Nobody looks at it before the fit.
import math
import textwrap

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpem import Budget, DPStandardScaler, pipeline_guarantee, plan
from dpem.paper import DPSymmetricMixture

data = load_breast_cancer()
names = data.feature_names[:10]  # means over a patient's nuclei; other columns restate them
X = data.data[:, :10]
train, test, _, diagnosis = train_test_split(X, data.target, test_size=0.3, random_state=0)
n, d = train.shape

# %% What is publicly known of the columns: limits for a cell nucleus, rounded up
# generously. Not the smallest and largest entry of this table, which belong to two
# particular patients.
limits = {
    "radius": 40.0,
    "texture": 50.0,
    "perimeter": 250.0,
    "area": 2500.0,
    "smoothness": 0.25,
    "compactness": 0.6,
    "concavity": 0.8,
    "concave points": 0.3,
    "symmetry": 0.5,
    "fractal dimension": 0.15,
}
bounds = (np.zeros(d), np.array(list(limits.values())))

# %% Before the fit: what to expect. Standardised columns have spread 1. We suppose that the
# two groups differ in most columns, each lying about 0.7 from the middle (signal = √10 ×
# 0.7 = 2.2), with a spread of 0.7 inside a group. That is an assumption, made without the
# data; a wrong one costs accuracy, never privacy.
assumed = {"sigma": 0.7, "signal": 2.2}
expected = plan("symmetric-mixture", n=n, d=d, epsilon=1.0, delta=1e-4, **assumed)
print(f"{n} patients, {d} measurements. Before any data are read, the plan predicts an")
print(f"error of {expected.predicted_error:.2f}; answering 'no difference' would be off by 2.2.\n")

# %% The fit, in two steps that share a budget: the models want standardised columns, so the
# centres and spreads are measured first, privately. Each step has epsilon = 1. Together
# they cost less than 2, because what is added up is not epsilon but the price behind it;
# the budget refuses whatever would exceed its total.
budget = Budget(epsilon=1.6, delta=2e-4)
private = make_pipeline(
    DPStandardScaler(epsilon=1.0, delta=1e-4, bounds=bounds, budget=budget),
    DPSymmetricMixture(epsilon=1.0, delta=1e-4, **assumed, budget=budget),
).fit(train)
model = private[-1]

print("One group lies this far from the middle, in spreads; the other opposite.")
for j in np.argsort(-np.abs(model.coef_))[:5]:
    print(f"  {names[j]:<24} {model.coef_[j]:+.2f}")
print("\n" + textwrap.fill(str(pipeline_guarantee(private)), 92) + "\n")

# %% What did privacy cost? The same model without privacy, on the same rows, judged on the
# same 171 held-out patients. In practice held-out labels are data as well: publishing this
# comparison would have a price of its own.
without = DPSymmetricMixture(epsilon=math.inf, delta=1e-4, **assumed)
reference = make_pipeline(StandardScaler(), without).fit(train)


def misclassified(pipeline):
    """Part of the held-out patients in the wrong group, which the model cannot name."""
    wrong = np.mean(pipeline.predict(test) != diagnosis)
    return min(wrong, 1 - wrong)


print("Held-out patients in the wrong group:")
print(f"  {misclassified(private):.1%} private, {misclassified(reference):.1%} without privacy,")
print(f"  {np.mean(diagnosis == 0):.1%} if everybody is called benign.")

# %% Where the model is wrong. It supposes two round clouds of equal weight. Here 63 of 100
# tumours are benign, the others vary more, and radius, perimeter and area say nearly the
# same. That costs accuracy, with privacy and without. The plan knows nothing of this, nor
# of the scaler's noise, so the error on real rows is larger than it predicts. And 398 rows
# are few: at a quarter of these epsilons the scaler's noise drowns the groups.
