"""Models as subcommands. The registry lists them, a model is imported when it is used, and its options are the
arguments of its estimator's constructor.
"""

from __future__ import annotations

import difflib
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dpem import registry
from dpem.cli.common import Options, Resolved, Session
from dpem.cli.options import Count, Value

if TYPE_CHECKING:
    from dpem.fitting.sequence import PrivateFit


#: From the name and the class of a model, the parameters of its command and the help text.
Build = Callable[[str, type["PrivateFit"]], tuple[list[click.Parameter], str]]
#: What the command of a model does.
Run = Callable[[Session, str, type["PrivateFit"], Options], None]


class Models(click.Group):
    """A command with a subcommand for each model."""

    def __init__(self, name: str, *, build: Build, run: Run, **more: Any) -> None:
        super().__init__(name, **more, invoke_without_command=True)
        self._build, self._run = build, run

    def invoke(self, ctx: click.Context) -> Any:
        """Without a model, print the help, which lists all models."""
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
        kind = registry.estimator(cmd_name)

        @click.pass_obj
        def command(session: Session, /, **options: object) -> None:
            self._run(session, cmd_name, kind, options)

        params, text = self._build(cmd_name, kind)
        return click.Command(cmd_name, params=params, callback=command, help=text, epilog=self.epilog)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        """The model's command; the error for an unknown model suggests a similar name or lists all."""
        name = args[0] if args else ""
        if name not in registry.modules():
            similar = difflib.get_close_matches(name, list(registry.modules()), n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"models are {', '.join(registry.modules())}."
            raise click.UsageError(f"There is no model {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each model, read from its file without importing it."""
        general = [(name, registry.described(name)) for name in registry.general()]
        paper = [(name, registry.described(name)) for name in registry.modules() if name not in registry.general()]
        for title, rows in (("Models", general), ("Models of the paper, which make stronger assumptions", paper)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def model_options(kind: type[PrivateFit], *, planning: bool = False) -> list[click.Option]:
    """The options for the estimator's arguments, by their types and the first sentences of their documentation."""
    from dpem.fitting.sequence import NOT_SETTINGS  # the commands declare these themselves

    texts, hints = parameter_help(kind), _hints(kind)
    options = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in (*NOT_SETTINGS, "start"):
            settings = {**_settings(hints.get(name, Any), parameter.default), "help": texts.get(name, "")}
            option = f"--{name.lower().replace('_', '-')}"
            is_flag = settings.get("default") in (True, False) and "type" not in settings
            options.append(click.Option([f"{option}/--no-{option[2:]}" if is_flag else option], **settings))
    if "start" in inspect.signature(kind).parameters:
        words = "equal: a start will be given." if planning else "equal, or a file with a number for each column."
        options.append(click.Option(["--start"], metavar="FILE|equal", help=f"The starting value of EM: {words}"))
    return options


def _settings(hint: object, default: object) -> Options:
    """The settings of click's option for an argument with this type and default."""
    if isinstance(default, bool):
        return {"default": default}
    settings: Options = {}
    if default is not None and default is not inspect.Parameter.empty:
        settings = {"default": default, "show_default": True}
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kinds = set(typing.get_args(hint) if is_union else (hint,)) - {type(None)}
    if typing.get_origin(hint) is typing.Literal:
        return {**settings, "type": click.Choice([str(word) for word in typing.get_args(hint)])}
    if kinds == {int}:
        return {**settings, "type": Count()}
    if kinds and kinds <= {int, float}:
        return {**settings, "type": float}
    return {**settings, "type": str if kinds == {str} else Value()}


def _hints(kind: type[PrivateFit]) -> dict[str, object]:
    """The types of the constructor's arguments, by name, as far as they can be resolved."""
    hints: dict[str, object] = {}
    for name, annotation in kind.__init__.__annotations__.items():
        single = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(single, inspect.unwrap(kind.__init__).__globals__)
        except (NameError, TypeError):  # a name that only type checkers import
            continue
    return hints


def parameter_help(kind: type[PrivateFit]) -> dict[str, str]:
    """The first sentence on each parameter in the estimator's docstring."""
    text = inspect.cleandoc(kind.__doc__ or "")
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    sentences: dict[str, str] = {}
    parameter = re.compile(r"^([\w, ]+?) ?:.*\n((?:[ \t]+.*\n?|\n)*)", re.MULTILINE)
    for names, body in parameter.findall(section[1] if section else ""):
        words = " ".join(body.split()).replace("``", "")
        words = re.sub(r"\*\*(\w[^*]*)\*\*| \(see :meth:`\w+`\)", r"\1", words)  # bold words, cross-references
        sentence = re.split(r"(?<=[^.]\.) (?=[A-Z])", words)[0]
        sentences |= {name.strip(): sentence for name in names.split(",")}
    return sentences


def constructor_arguments(kind: type[PrivateFit], options: Options) -> Options:
    """The options that are arguments of the constructor; an option that was not given leaves its default."""
    defaults = {name: p.default for name, p in inspect.signature(kind).parameters.items() if name in options}
    return {name: options[name] for name, default in defaults.items() if options[name] is not None or default is None}
