"""Two kinds of tumour, found without their labels: a private Gaussian mixture.

    python examples/gaussian_mixture.py

Data: Breast Cancer Wisconsin, 569 patients, shipped with scikit-learn. Each row has
measurements of cell nuclei. The fit does not know which tumours were malignant. We keep those
labels to see, at the end, whether its two components are the two diagnoses.

The example runs as a script, or cell by cell in an editor that knows ``# %%``. Its noise is
private, so the figures differ a little each time.
"""

# %% The table, and what is publicly known of its columns: limits for a cell nucleus, rounded
# up generously. Not the smallest and largest entry of this table, which belong to two
# particular patients. (The other columns repeat these.)
import textwrap
import warnings

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import GaussianMixture

from dpem import DPGaussianMixture

data = load_breast_cancer()
bounds = {
    "mean radius": (0, 40),
    "mean texture": (0, 50),
    "mean smoothness": (0, 0.25),
    "mean concavity": (0, 0.8),
    "mean concave points": (0, 0.3),
}
table = pd.DataFrame(data.data, columns=data.feature_names)[list(bounds)]

# %% Before the fit: what to expect, from the number of rows and columns alone.
model = DPGaussianMixture(2, epsilon=2.0, delta=1e-4, bounds=bounds)
expected = model.plan(len(table)).prediction
print(f"{len(table)} patients, {len(bounds)} measurements. The plan expects {expected.median:.0%} of them")
print("in another component than without privacy.\n")

# %% The fit: one charge for centring, scaling, a start, EM steps and a check of the fit. The
# components are in the table's own units, the largest first.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the fit warns of is printed below
    model.fit(table)
print("Weights and centres of the components:")
print(f"  {'weight':<22} " + "  ".join(f"{weight:9.2f}" for weight in model.weights_))
for j, name in enumerate(bounds):
    print(f"  {name:<22} " + "  ".join(f"{centre:9.3f}" for centre in model.means_[:, j]))

# %% Diagnostics are part of the result. Columns of this table are correlated, and 569 rows are
# few: the fit check often finds one correlated Gaussian as good as two components.
print("\nWhat the fit warns of:")
for diagnostic in model.diagnostics_ or ["nothing"]:
    print(textwrap.indent(textwrap.fill(str(diagnostic), 88), "  "))
print()
print(textwrap.fill(str(model.guarantee_), 92) + "\n")

# %% What did privacy cost? scikit-learn's mixture on the same rows, each column divided by
# its limit. In practice labels are data as well: publishing this comparison would have a
# price of its own.
limits = np.array([high for _, high in bounds.values()])
plain = GaussianMixture(2, covariance_type="diag", n_init=5, random_state=0).fit(table / limits)


def misclassified(component):
    """The share of patients in the wrong component; the model does not know which diagnosis is which."""
    wrong = np.mean(component != data.target)
    return min(wrong, 1 - wrong)


print("Patients in the wrong component:")
print(f"  {misclassified(model.predict(table)):.1%} private,")
print(f"  {misclassified(plain.predict(table / limits)):.1%} without privacy,")
print(f"  {np.mean(data.target == 0):.1%} if everybody is called benign.")

# %% Where the model is wrong. It assumes that columns are independent within a component;
# the size of a nucleus and the depth of its folds are not. That costs accuracy, with privacy
# and without. And 569 rows are few: at epsilon = 0.5 the noise hides the components.
