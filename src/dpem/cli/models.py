"""Models as subcommands. The registry lists them, a model is imported when it is used, and its options are the
arguments of its estimator's constructor.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
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
        super().__init__(name, params=list(chain.from_iterable(sections.values())), **more)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, parameters in self._sections.items():
            options = [parameter for parameter in parameters if isinstance(parameter, click.Option)]
            records = [option.get_help_record(ctx) for option in options]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record is not None])


class Models(Group):
    """A command with a subcommand for each model.

    ``build`` returns the parameters and the help of a model's command; ``run`` executes it.
    """

    noun = "model"

    def __init__(
        self,
        name: str,
        *,
        build: Callable[[str, type[PrivateFit]], tuple[Sections, str]],
        run: Callable[[Session, str, type[PrivateFit], Options], None],
        **more: Any,
    ) -> None:
        super().__init__(name, options_metavar="", **more)
        self._build, self._run = build, run

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The general models, then those of the paper."""
        return list(registry.modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in registry.modules():
            return None
        model_class = registry.estimator(cmd_name)

        @click.pass_obj
        def command(session: Session, /, **options: object) -> None:
            self._run(session, cmd_name, model_class, options)

        sections, text = self._build(cmd_name, model_class)
        return ModelCommand(cmd_name, sections, callback=command, help=text, epilog=self.epilog)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each model, read from its file without importing it."""
        general = registry.general()
        paper = [name for name in registry.modules() if name not in general]
        for title, names in (("Models", general), ("Models of the paper, which make stronger assumptions", paper)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, registry.described(name)) for name in names])


def model_options(model_class: type[PrivateFit]) -> list[click.Option]:
    """The options for the estimator's arguments, by their types and the first sentences of their documentation."""
    from dpem.fitting.sequence import NOT_SETTINGS  # the commands declare these themselves

    descriptions, annotations = parameter_help(model_class), _annotations(model_class)
    options = []
    for name, parameter in inspect.signature(model_class).parameters.items():
        option, default, text = name.lower().replace("_", "-"), parameter.default, descriptions.get(name)
        if isinstance(default, bool) and name not in NOT_SETTINGS:
            options.append(click.Option([f"--{option}/--no-{option}"], default=default, help=text))
        elif name not in NOT_SETTINGS:
            shown = {"default": default, "show_default": True} if default not in (None, parameter.empty) else {}
            options.append(click.Option([f"--{option}"], type=_type(annotations.get(name)), help=text, **shown))
    return options


def _type(annotation: object) -> click.ParamType:
    """The type of the option for an argument with this annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return click.Choice([str(word) for word in typing.get_args(annotation)])
    is_union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    alternatives = set(typing.get_args(annotation) if is_union else (annotation,)) - {type(None)}
    if alternatives == {int}:
        return Count()
    if alternatives <= {int, float}:
        return Number()
    return click.STRING if alternatives == {str} else Value()


def _annotations(model_class: type[PrivateFit]) -> dict[str, object]:
    """The types of the constructor's arguments, by name, as far as they can be resolved."""
    constructor = model_class.__init__
    types_by_name: dict[str, object] = {}
    for name, annotation in constructor.__annotations__.items():
        single = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            types_by_name |= typing.get_type_hints(single, inspect.unwrap(constructor).__globals__)
        except (NameError, TypeError):  # a name that only type checkers import
            continue
    return types_by_name


def parameter_help(model_class: type[PrivateFit]) -> dict[str, str]:
    """The first sentence on each parameter in the estimator's docstring."""
    text = inspect.cleandoc(model_class.__doc__ or "")
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    sentences: dict[str, str] = {}
    parameter = re.compile(r"^([\w, ]+?) ?:.*\n((?:[ \t]+.*\n?|\n)*)", re.MULTILINE)
    for names, body in parameter.findall(section[1] if section else ""):
        words = " ".join(body.split()).replace("``", "")
        words = re.sub(r"\*\*(\w[^*]*)\*\*| \(see :meth:`\w+`\)", r"\1", words)  # bold words, cross-references
        sentence = re.split(r"(?<=[^.]\.) (?=[A-Z])", words)[0]
        sentences |= {name.strip(): sentence for name in names.split(",")}
    return sentences


def constructor_arguments(model_class: type[PrivateFit], options: Options) -> Options:
    """The options that are arguments of the constructor; an option that was not given leaves its default."""
    names = inspect.signature(model_class).parameters
    return {name: options[name] for name in names if options.get(name) is not None}
