"""``dpem completion``: the lines that make a shell complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dpem.cli.common import Session


@click.command(short_help="Let a shell complete commands, options and file names.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(session: Session, shell: str) -> None:
    """Print a script that makes SHELL complete what dpem understands.

    \b
    Put one of these where your shell starts:
      eval "$(dpem completion bash)"                                      # ~/.bashrc
      eval "$(dpem completion zsh)"                                       # ~/.zshrc
      dpem completion fish > ~/.config/fish/completions/dpem.fish
    """
    from dpem.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "dpem", "_DPEM_COMPLETE").source())
