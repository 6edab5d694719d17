"""DP-SGD by Opacus on the exact negative log-likelihood of each model. Runs in an environment of its own.

    python peer_opacus.py JOB.json OUT.json

It imports nothing of dpem. Clipping, learning rate, sampling rate and number of steps are the best of a grid on
practice tables. The accountant is Opacus's own (PRV) at the job's (ε, δ), for Poisson sampling and adding or removing a
row: a weaker guarantee than replacing one, for which the same noise would count about double.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Job = dict[str, Any]


class Knobs(NamedTuple):
    """Part of the rows in a batch, number of steps, learning rate, and the clip of a gradient in units of σ√d."""

    rate: float
    steps: int
    learning_rate: float
    clip: float


#: Whole-table steps as EM takes them, and many small ones.
GRID = tuple(
    Knobs(rate, steps, learning_rate, clip)
    for rate, many_steps, learning_rates in (
        (1.0, (1, 3, 8, 16), (0.5, 1.0, 2.0, 4.0)),
        (0.1, (20, 60), (0.1, 0.3, 1.0)),
    )
    for steps, learning_rate, clip in itertools.product(many_steps, learning_rates, (0.6, 1.2, 2.4))
)


def likelihood(job: Job, start: Any) -> Any:
    """A module whose one parameter is β and whose output is σ² times each row's negative log-likelihood, up to a
    constant. A row is a record and its response; a mixture of clouds has no response.
    """
    import torch
    from torch import nn

    variance, model = job["sigma"] ** 2, job["model"]

    def log_cosh(t: Any) -> Any:
        return torch.abs(t) + nn.functional.softplus(-2 * torch.abs(t)) - math.log(2)

    class NegativeLogLikelihood(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.beta = nn.Parameter(torch.as_tensor(start, dtype=torch.float32))

        def forward(self, rows: Any) -> Any:
            if model == "symmetric-mixture":
                return (self.beta @ self.beta) / 2 - variance * log_cosh(rows @ self.beta / variance)
            x, y = rows[:, :-1], rows[:, -1]
            missing = torch.isnan(x)
            fitted = torch.where(missing, 0.0, x) @ self.beta
            if model == "symmetric-regression":
                return fitted**2 / 2 - variance * log_cosh(y * fitted / variance)
            v = variance + missing.to(x.dtype) @ self.beta**2
            return variance / 2 * ((y - fitted) ** 2 / v + torch.log(v))

    return NegativeLogLikelihood()


class Rows:
    """A data set that hands a whole batch over at once."""

    def __init__(self, table: dict[str, Any]) -> None:
        import torch

        y = table["y"]
        self.rows = torch.as_tensor(table["X"] if y is None else np.column_stack([table["X"], y]), dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return (self.rows[i],)

    def __getitems__(self, index: list[int]) -> Any:
        return (self.rows[index],)


def dp_sgd(job: Job, table: dict[str, Any], knobs: Knobs, multiplier: float, seed: int) -> Any:
    """β after the last step; its largest entries where the sparsity is known (post-processing)."""
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    rows = Rows(table)
    module = likelihood(job, table["start"])
    optimizer = torch.optim.SGD(module.parameters(), lr=knobs.learning_rate)
    batch = round(knobs.rate * len(rows))
    loader = torch.utils.data.DataLoader(rows, batch_size=batch, collate_fn=lambda part: part)
    private, optimizer, loader = PrivacyEngine(accountant="prv").make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=knobs.clip * job["sigma"] * math.sqrt(job["d"]),
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for (part,) in itertools.islice(batches, knobs.steps):
        optimizer.zero_grad()
        private(part).mean().backward()
        optimizer.step()
    beta = module.beta.detach().numpy().astype(float)
    s = job["sparsity"]
    return beta if s is None else np.where(np.abs(beta) >= np.sort(np.abs(beta))[-s], beta, 0.0)


def multipliers(job: Job) -> dict[tuple[float, int], float]:
    """Opacus's noise multiplier for each schedule of the grid, at (ε, δ)."""
    from opacus.accountants.utils import get_noise_multiplier

    return {
        (rate, steps): get_noise_multiplier(
            target_epsilon=job["epsilon"],
            target_delta=job["delta"],
            sample_rate=rate,
            steps=steps,
            accountant="prv",
            epsilon_tolerance=1e-3,
        )
        for rate, steps in sorted({(knobs.rate, knobs.steps) for knobs in GRID})
    }


def load(table: dict[str, Any]) -> dict[str, Any]:
    return {name: None if path is None else np.load(path, allow_pickle=False) for name, path in table.items()}


def error(job: Job, estimate: Any, truth: Any) -> float:
    """Distance to the truth, for mixtures up to sign."""
    signs = (1,) if job["model"] == "missing-regression" else (1, -1)
    return float(min(np.linalg.norm(sign * estimate - truth) for sign in signs))


def run(job: Job) -> dict[str, Any]:
    """Choose by practice, then fit every table."""
    started = time.process_time()
    noise = multipliers(job)
    practice = [load(table) for table in job["practice"]]

    def mean_error(knobs: Knobs) -> float:
        multiplier = noise[knobs.rate, knobs.steps]
        fits = (dp_sgd(job, table, knobs, multiplier, 10_000 + i) for i, table in enumerate(practice))
        return float(np.mean([error(job, beta, t["truth"]) for beta, t in zip(fits, practice, strict=True)]))

    best = min(GRID, key=mean_error)
    multiplier = noise[best.rate, best.steps]
    tuning = time.process_time() - started
    estimates, seconds = [], []
    for seed, paths in enumerate(job["tables"]):
        table = load(paths)
        started = time.process_time()
        estimates.append(dp_sgd(job, table, best, multiplier, seed).tolist())
        seconds.append(time.process_time() - started)
    return {
        "start": True,
        "guarantee": f"({job['epsilon']:g}, {job['delta']:.2g}), add or remove",
        "estimates": estimates,
        "seconds": seconds,
        "tuning_seconds": tuning,
        "settings": {**best._asdict(), "noise": multiplier},
    }


def main(job_path: str, out_path: str) -> None:
    import opacus
    import torch

    warnings.simplefilter("ignore")
    job = json.loads(Path(job_path).read_text())
    methods = {"DP-SGD, Opacus": run(job)}
    versions = {"opacus": opacus.__version__, "torch": torch.__version__}
    Path(out_path).write_text(json.dumps({"versions": versions, "methods": methods}))


if __name__ == "__main__":
    main(*sys.argv[1:])
