"""dpem plan, dpem ledger, and the help of every command."""

import click
import pytest
from running_dpem import LEDGER, dpem

from dpem import Plan, plan, registry
from dpem.cli import cli

SMALL = ("symmetric-mixture", "--n", "600", "--d", "3", "--delta", "1e-3")


def commands(group: click.Group, *before: str):
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*before, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)


def test_every_model_is_a_command():
    found = set(commands(cli))
    assert {(verb, name) for verb in ("fit", "plan") for name in registry.modules()} <= found


@pytest.mark.parametrize("command", [(), *commands(cli)], ids=" ".join)
def test_help_has_examples(command):
    done = dpem(*command, "--help")
    assert done.code == 0
    assert done.out.startswith("Usage: dpem")
    assert any(line.strip().startswith(f"dpem {' '.join(command)}".strip()) for line in done.out.splitlines()[1:])
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize("group", [(), ("ledger",), ("fit",), ("plan",)], ids=" ".join)
def test_a_group_alone_shows_its_help(group):
    done = dpem(*group)
    assert done.code == 0
    assert "Models:" in done.out if group in (("fit",), ("plan",)) else "Commands:" in done.out


def test_a_plan_equals_that_of_the_library():
    done = dpem("plan", *SMALL, "--epsilon", "1", "--sigma", "0.5")
    made = plan("symmetric-mixture", n=600, d=3, delta=1e-3, epsilon=1.0, sigma=0.5)
    assert done.out.split() == str(made).split()
    assert max(map(len, done.out.splitlines())) <= 100
    found = dpem("plan", *SMALL, "--epsilon", "1", "--sigma", "0.5", "--json").json
    assert found.pop("warnings") == []
    assert Plan.from_dict(found).to_dict()["steps"] == made.to_dict()["steps"]


def test_a_sweep_prints_a_table():
    done = dpem("plan", *SMALL, "--sigma", "0.5", "--sweep", "epsilon=0.4,1")
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["epsilon", "distance", "to"]
    assert [line.split()[0] for line in lines[1:]] == ["0.4", "1"]
    found = dpem("plan", *SMALL, "--sigma", "0.5", "--sweep", "epsilon=0.4,1", "--json").json
    assert [one["epsilon"] for one in found["plans"]] == [0.4, 1.0]


def test_a_sweep_of_two_options_as_csv():
    options = ("--n", "1e3", "--delta", "1e-4", "--epsilon", "1", "--sweep", "n=600,1e3", "--sweep", "d=1,2", "--csv")
    lines = dpem("plan", "gaussian-mixture", *options).out.splitlines()
    assert lines[0].startswith("n,d,share of rows in another component than without privacy,")
    assert [line.split(",")[:2] for line in lines[1:]] == [["600", "1"], ["600", "2"], ["1000", "1"], ["1000", "2"]]


def test_an_infeasible_plan_is_printed():
    done = dpem(
        "plan", "symmetric-mixture", "--n", "20", "--d", "3", "--delta", "1e-3", "--epsilon", "0.1", "--sigma", "0.5"
    )
    assert done.code == 0
    assert "Not feasible as it is" in done.out


@pytest.mark.usefixtures("folder")
class TestLedger:
    def test_open_show_and_history(self):
        at = ("--ledger", LEDGER)
        opened = dpem("ledger", "open", *at, "--dataset", "trial", "--epsilon", "2", "--delta", "1e-4")
        assert opened.out.startswith("Opened trial with epsilon = 2, delta = 0.0001 in sqlite:///")
        assert dpem("ledger", "history", *at).out == "No fit has been charged.\n"
        fit = ("fit", "symmetric-mixture", "patients.csv", "--sigma", "0.5", "--epsilon", "1", "--delta", "1e-4")
        assert dpem(*fit, *at, "--dataset", "trial").code == 0
        shown = dpem("ledger", "show", *at).out.splitlines()
        assert [line.split()[0] for line in shown] == ["dataset", "patients", "trial"]
        assert len({len(line) for line in shown}) == 1
        one = dpem("ledger", "show", *at, "--dataset", "trial", "--json").json["datasets"]
        assert [(state["name"], state["n_charges"]) for state in one] == [("trial", 1)]
        lines = dpem("ledger", "history", *at).out.splitlines()
        assert "DPSymmetricMixture.fit, n=600, d=3" in lines[1]
        (charge,) = dpem("ledger", "history", *at, "--dataset", "trial", "--json").json["fits"]
        assert (charge["epsilon"], charge["delta"], charge["outcome"]) == (1.0, 1e-4, "answered")


def test_a_plan_assumes_effects_of_the_given_strength(folder):
    command = ("plan", "linear-regression", "--n", "1e4", "--d", "5", "--epsilon", "1", "--delta", "1e-6")
    usual, weak = dpem(*command), dpem(*command, "--effect", "0.1")
    assert "explain 40 % of the variance" in usual.out
    assert "explain 10 % of the variance" in weak.out
    steps = [line for line in usual.out.splitlines() if " %  " in line]
    assert steps == [line for line in weak.out.splitlines() if " %  " in line]
    refused = dpem(*command, "--effect", "2")
    assert (refused.code, refused.out) == (2, "")
    assert "--effect must be a number from 0.1 to 0.8" in refused.err
    assert dpem(*command, "--sweep", "effect=0.1,0.8", "--csv").out.count("\n") == 3
    assert dpem("plan", "symmetric-mixture", *command[2:], "--effect", "1").code == 2
