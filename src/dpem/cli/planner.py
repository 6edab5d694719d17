"""``dpem planner``: the page for choosing ε before there are data."""

from __future__ import annotations

import click

from dpem.cli import options
from dpem.cli.common import Exit, Session, refusing


@click.command(short_help="Open the page that plans in a browser.")
@click.option("--html", metavar="FILE", help="Write the page there, as one offline file, and open nothing.")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@options.json
@click.pass_obj
def planner(session: Session, html: str | None, force: bool) -> None:
    """Open one page with sliders for rows, columns and ε, and what a fit is predicted to give.

    No data are read, nothing is sent and nothing is spent. The page works without a network.

    \b
    Examples:
      dpem planner
      dpem planner --html planner.html
    """
    import os
    import tempfile
    import webbrowser

    from dpem.cli import outputs
    from dpem.planner import write_page

    if html is not None:
        outputs.check([html], [], force)
    path = html or os.path.join(tempfile.mkdtemp(prefix="dpem-"), "planner.html")
    with refusing(Exit.OUTPUT):
        write_page(path)
    opened = html is None and webbrowser.open("file://" + os.path.realpath(path))
    session.result({"page": path, "opened": opened}, f"Opened {path}." if opened else f"Wrote {path}.")
