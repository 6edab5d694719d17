"""Models as subcommands: each is found by the registry, loaded when it is asked for, and has the options that its
estimator's constructor has.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any

import click

from dpem import registry
from dpem.cli.options import Count, Value

#: Arguments that every model's command has in its own way, or not at all.
OWN = (
    "epsilon",
    "delta",
    "bounds",
    "y_bounds",
    "levels",
    "person",
    "rows_per_person",
    "budget",
    "random_state",
    "start",
)


class Models(click.Group):
    """A command with a subcommand for each model."""

    def __init__(self, name: str, *, build: Callable[[str, type[Any]], click.Command], **more: Any) -> None:
        super().__init__(name, **more, invoke_without_command=True)
        self._build = build

    def invoke(self, ctx: click.Context) -> Any:
        """Without a model, the help with all models."""
        if not ctx.args and not ctx._protected_args:
            click.echo(ctx.get_help())
            return None
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The general models, then those of the paper."""
        return list(registry.modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in registry.modules():
            return None
        return self._build(cmd_name, registry.estimator(cmd_name))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The model's command, or the known models: a model that is not there is the commonest mistake."""
        name = args[0] if args else ""
        if name not in registry.modules():
            import difflib

            near = difflib.get_close_matches(name, list(registry.modules()), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(registry.modules())}."
            raise click.UsageError(f"There is no model {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each model, read off its file: nothing is loaded."""
        general = [(name, registry.described(name)) for name in registry.general()]
        paper = [(name, registry.described(name)) for name in registry.modules() if name not in registry.general()]
        for title, rows in (("Models", general), ("Models of the paper, which assume more", paper)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def model_options(kind: type[Any], *, planning: bool = False) -> list[click.Option]:
    """The options that the estimator's own arguments are."""
    said = parameter_help(kind)
    hints = _hints(kind)
    looks: dict[str, dict[str, Any]] = getattr(kind, "_options", {})
    found = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in OWN:
            look = {**_look(hints.get(name, Any), parameter.default), "help": said.get(name, ""), **looks.get(name, {})}
            if "choices" in look:
                look["type"] = click.Choice(look.pop("choices"))
            found.append(click.Option(look.pop("flags", [_flag(name, look)]), **look))
    if "start" in inspect.signature(kind).parameters:
        words = "equal: a start will be given." if planning else "equal, or a file of one number for each column."
        found.append(click.Option(["--start"], metavar="FILE|equal", help=f"Where EM begins: {words}"))
    return found


def _flag(name: str, look: dict[str, Any]) -> str:
    option = f"--{name.lower().replace('_', '-')}"
    return f"{option}/--no-{option[2:]}" if look.get("default") in (True, False) and "type" not in look else option


def _look(hint: Any, default: Any) -> dict[str, Any]:
    """How an argument of this type looks as an option."""
    if isinstance(default, bool):
        return {"default": default}
    given: dict[str, Any] = {}
    if default is not None and default is not inspect.Parameter.empty:
        given = {"default": default, "show_default": True}
    kinds = {kind for kind in _alternatives(hint) if kind is not type(None)}
    if typing.get_origin(hint) is typing.Literal:
        return {**given, "type": click.Choice([str(word) for word in typing.get_args(hint)])}
    one: Any = (
        Count() if kinds == {int} else float if kinds <= {int, float} and kinds else str if kinds == {str} else Value()
    )
    return {**given, "type": one}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )


def _hints(kind: type[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, annotation in kind.__init__.__annotations__.items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found |= typing.get_type_hints(one, kind.__init__.__globals__)
        except (NameError, TypeError):  # an annotation that is known to type checkers only
            continue
    return found


def parameter_help(kind: type[Any]) -> dict[str, str]:
    """The first sentence that the estimator's docstring says of each parameter."""
    text = inspect.cleandoc(kind.__doc__ or "")
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    said: dict[str, str] = {}
    for names, body in re.findall(
        r"^([\w, ]+?) ?:.*\n((?:[ \t]+.*\n?|\n)*)", section[1] if section else "", re.MULTILINE
    ):
        words = " ".join(body.split()).replace("``", "")
        words = re.sub(r"\*\*(\w[^*]*)\*\*| \(see :meth:`\w+`\)", r"\1", words)  # bold words, cross-references
        sentence = re.split(r"(?<=[^.]\.) (?=[A-Z])", words)[0]
        said |= {name.strip(): sentence for name in names.split(",")}
    return said


def given_to(kind: type[Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Of what was asked, the arguments of the constructor; an option that was not given keeps the default there."""
    found = {name: p.default for name, p in inspect.signature(kind).parameters.items() if name in asked}
    return {name: asked[name] for name, default in found.items() if asked[name] is not None or default is None}
