"""Models as subcommands. The registry lists them, a model is imported when it is used, and its options are the
arguments of its estimator's constructor.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dpem import registry
from dpem.cli.common import Group, Options, Session
from dpem.cli.options import Count, Number, Value

if TYPE_CHECKING:
    from dpem.fitting.sequence import PrivateFit

#: The parameters of a model's command under the headings of its help.
Sections = Mapping[str, Sequence[click.Parameter]]


class ModelCommand(click.Command):
    """The command of a model, whose help has its options under headings."""

    def __init__(self, name: str, sections: Sections, **more: Any) -> None:
        super().__init__(name, params=[one for options in sections.values() for one in options], **more)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, options in self._sections.items():
            rows = [one.get_help_record(ctx) for one in options if isinstance(one, click.Option)]
            with formatter.section(heading):
                formatter.write_dl([row for row in rows if row is not None])


class Models(Group):
    """A command with a subcommand for each model.

    ``build`` gives, from the name and the class of a model, the parameters of its command and its help; ``run`` is what
    the command does.
    """

    what = "model"

    def __init__(
        self,
        name: str,
        *,
        build: Callable[[str, type[PrivateFit]], tuple[Sections, str]],
        run: Callable[[Session, str, type[PrivateFit], Options], None],
        **more: Any,
    ) -> None:
        super().__init__(name, **more)
        self._build, self._run = build, run

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

        sections, text = self._build(cmd_name, kind)
        return ModelCommand(cmd_name, sections, callback=command, help=text, epilog=self.epilog)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each model, read from its file without importing it."""
        general = registry.general()
        paper = [name for name in registry.modules() if name not in general]
        for title, names in (("Models", general), ("Models of the paper, which make stronger assumptions", paper)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, registry.described(name)) for name in names])


def model_options(kind: type[PrivateFit]) -> list[click.Option]:
    """The options for the estimator's arguments, by their types and the first sentences of their documentation."""
    from dpem.fitting.sequence import NOT_SETTINGS  # the commands declare these themselves

    texts, hints = parameter_help(kind), _hints(kind)
    options = []
    for name, parameter in inspect.signature(kind).parameters.items():
        option, default = f"--{name.lower().replace('_', '-')}", parameter.default
        if isinstance(default, bool) and name not in NOT_SETTINGS:
            options.append(click.Option([f"{option}/--no-{option[2:]}"], default=default, help=texts.get(name)))
        elif name not in NOT_SETTINGS:
            shown = {"default": default, "show_default": True} if default not in (None, parameter.empty) else {}
            options.append(click.Option([option], type=_type(hints.get(name, Any)), help=texts.get(name), **shown))
    return options


def _type(hint: object) -> click.ParamType:
    """The type of the option for an argument with this annotation."""
    if typing.get_origin(hint) is typing.Literal:
        return click.Choice([str(word) for word in typing.get_args(hint)])
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kinds = set(typing.get_args(hint) if is_union else (hint,)) - {type(None)}
    if kinds == {int}:
        return Count()
    if kinds and kinds <= {int, float}:
        return Number()
    return click.STRING if kinds == {str} else Value()


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
