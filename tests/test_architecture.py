"""Which modules draw random numbers, and what they import and compare, as their source text shows.

import-linter checks the imports between packages (`make test` runs it). This file checks what it cannot see: calls.
"""

import ast
import re
from pathlib import Path

import pytest

import dpem

PACKAGE = Path(dpem.__file__).parent
TREES = {p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text("utf-8")) for p in sorted(PACKAGE.rglob("*.py"))}

NOISE = ("privacy/noise.py", "privacy/gumbel.py")
#: Modules that simulate: what they draw is never released as private.
SIMULATION = ("paper/planning/", "paper/algorithms.py", "fitting/rehearsal.py", "fitting/surrogate/", "audit/")
#: Packages where a function named ``sample`` or ``draw`` draws from a fitted, public model.
SAMPLING = ("paper/", "models/", "fitting/")

LIBRARIES = {"opendp", "random", "secrets", "diffprivlib"}
SAMPLERS = {
    *("binomial", "bytes", "choice", "dirichlet", "exponential", "gamma", "geometric", "gumbel", "integers", "laplace"),
    *("logistic", "lognormal", "multinomial", "multivariate_normal", "normal", "permutation", "permuted", "poisson"),
    *("rand", "randint", "randn", "random", "random_sample", "rvs", "shuffle", "standard_cauchy"),
    *("standard_exponential", "standard_gamma", "standard_normal", "standard_t", "uniform", "urandom"),
}


def dotted(node: ast.expr) -> str:
    """``np.random.default_rng`` of the expression that says so; parts that are not names are empty."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def samples(tree: ast.AST) -> list[tuple[int, str, str]]:
    """Every place that draws or imports a sampler: line, innermost function, call or import."""
    found: list[tuple[int, str, str]] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] in LIBRARIES or name.name.startswith("numpy.random"):
                    found.append((node.lineno, function, f"import {name.name}"))
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            if module.split(".")[0] in LIBRARIES or any(
                n.startswith(("numpy.random", "os.urandom", "sklearn.utils.check_random_state")) for n in names
            ):
                found.append((node.lineno, function, f"from {module} import"))
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            *receiver, method = name.split(".")
            # a mechanism draws from its Noise object, which is the sampler under test
            is_noise = bool(receiver) and receiver[-1] in ("noise", "_noise")
            draws = method in SAMPLERS and bool(receiver) and not is_noise
            if draws or "random" in receiver or method in ("default_rng", "check_random_state"):
                found.append((node.lineno, function, name))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(tree, "")
    return found


def offences(path: str, tree: ast.AST) -> list[str]:
    """The draws and imports of :func:`samples` that this file may not make."""

    def allowed(function: str, what: str) -> bool:
        if path in NOISE:
            return True
        if path.startswith(SIMULATION):
            return "opendp" not in what
        if path.startswith("models/") and what.split(".")[0] in ("rng", ""):
            return True  # a generator that is an argument, or rehearsal's, draws simulated rows
        if path == "tables/persons.py":
            return what == "import secrets"  # the secret of hashes, no noise
        return path.startswith(SAMPLING) and function in ("sample", "draw") and not what.startswith(("import", "from"))

    return [f"{path}:{line}: {what}" for line, function, what in samples(tree) if not allowed(function, what)]


def private_sklearn(tree: ast.AST) -> list[str]:
    """Imports of scikit-learn's private modules or names."""
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [dotted(node)]
        for name in names:
            first, *rest = name.split(".")
            if first == "sklearn" and any(part.startswith("_") and not part.endswith("__") for part in rest):
                found.append(name)
    return found


def test_the_files_are_found():
    assert {*NOISE, "query.py", "privacy/curator.py", "paper/engine/clipped_sums.py"} <= set(TREES)


def test_only_the_noise_module_draws_noise():
    assert [offence for path, tree in TREES.items() for offence in offences(path, tree)] == []


def test_the_noise_module_is_seen_to_draw():
    seen = " ".join(what for path in NOISE for _, _, what in samples(TREES[path]))
    for sampler in ("opendp", "default_rng", "gumbel", "standard_normal", "laplace"):
        assert sampler in seen


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("paper/published.py", "import opendp.prelude as dp"),
        ("privacy/mechanisms.py", "from opendp.measurements import make_laplace"),
        ("fitting/search.py", "import opendp.prelude as dp"),
        ("privacy/curator.py", "import numpy as np\nanswer = np.random.normal(size=3)"),
        ("privacy/mechanisms.py", "def f(rng, v):\n    return v + rng.laplace(size=3)"),
        ("paper/steps.py", "from numpy.random import default_rng"),
        ("paper/steps.py", "import numpy as np\nrng = np.random.default_rng(0)"),
        ("paper/steps.py", "import random\nrandom.gauss(0, 1)"),
        ("tables/array.py", "def sample(rng):\n    return rng.standard_normal(3)"),
        ("paper/engine/clipped_sums.py", "import numpy as np\ndef kernel(x):\n    return x + np.random.gumbel()"),
        ("paper/models.py", "def sum(self, rng):\n    return rng.uniform(3)"),
        ("fitting/estimator.py", "import numpy as np\ndef fit(self):\n    self.rng = np.random.RandomState(0)"),
        ("fitting/estimator.py", "from sklearn.utils import check_random_state"),
        ("fitting/estimator.py", "from scipy import stats\ndef fit(self):\n    return stats.norm.rvs(3)"),
        ("query.py", "import secrets"),
    ],
)
def test_planted_draws_are_found(path, text):
    assert offences(path, ast.parse(text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "paper/models/base.py",
            "import numpy as np\ndef sample(n, rng: np.random.Generator):\n    return rng.integers(0, 2)",
        ),
        ("fitting/estimator.py", "import numpy as np\ndef sample(self, seed):\n    r = np.random.default_rng(seed)"),
        ("fitting/rehearsal.py", "import numpy as np\nrng = np.random.default_rng(0)\nrng.standard_normal(4)"),
        ("privacy/mechanisms.py", "def f(noise, v):\n    return noise.laplace(v, 1.0)"),
        ("privacy/curator.py", "def f(self, v):\n    return isinstance(v, np.random.Generator)"),
    ],
)
def test_permitted_draws_pass(path, text):
    assert offences(path, ast.parse(text)) == []


def test_no_private_part_of_scikit_learn():
    assert {path: found for path, tree in TREES.items() if (found := private_sklearn(tree))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from sklearn.mixture._base import BaseMixture",
        "import sklearn.linear_model._base",
        "from sklearn.utils import _safe_indexing",
        "import sklearn\nsklearn.utils._param_validation.Interval",
    ],
)
def test_planted_private_imports_are_found(text):
    assert private_sklearn(ast.parse(text))


def test_the_public_part_of_scikit_learn_passes():
    text = "from sklearn.base import BaseEstimator\nimport sklearn\nsklearn.__version__"
    assert private_sklearn(ast.parse(text)) == []


#: A comparison of the class or name of a model or step; only the packages that contain them may make one.
COMPARISONS = re.compile(
    r"isinstance\((?:step|model|estimator|[a-z_.]+\.model)\b, |type\((?:step|model|estimator)\) (?:is|==|in)\b"
    r'|\b(?:model|name|kind)\w*\)? *(?:==|!=) *"[a-z]+-(?:mixture|regression|class)'
)


def comparisons(text: str) -> list[str]:
    """Lines that compare a model's name or class, or a step's class."""
    return [line.strip() for line in text.splitlines() if COMPARISONS.search(line)]


def test_no_other_package_compares_models_or_steps():
    others = {path for path in TREES if not path.startswith(("models/", "paper/"))}
    assert {path: found for path in sorted(others) if (found := comparisons((PACKAGE / path).read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "if isinstance(step, Refine):",
        "if isinstance(model, DPLatentClass):",
        "ok = not isinstance(problem.model, SymmetricMixture)",
        'if model == "latent-class":',
        'x = 1 if plan.model_name != "linear-regression" else 0',
        "if type(model) is DPMeans:",
    ],
)
def test_planted_comparisons_are_found(text):
    assert comparisons(text)
