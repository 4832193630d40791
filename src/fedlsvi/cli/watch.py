"""`fedlsvi watch`: runs and federations as a page in the browser, while they go on."""

from __future__ import annotations

from pathlib import Path

import click

from fedlsvi.cli.command import command, option


@command()
@click.argument("place", type=click.Path(), default="runs", metavar="[PLACE]",
                help="A run, a folder of runs, a project, or a kit.")  # fmt: skip
@option("--port", type=click.IntRange(0, 65535), default=8799, metavar="N",
        help="Port of the page; 0 is any that is free.")  # fmt: skip
@option("--address", default="127.0.0.1", metavar="ADDRESS",
        help="Where it listens; elsewhere than on loopback the page needs a token.")  # fmt: skip
@option("--name", "names", multiple=True, metavar="HOST",
        help="A further name under which the page is opened. Repeatable.")  # fmt: skip
def watch(place: str, port: int, address: str, names: tuple[str, ...]) -> int:
    """Show runs and federations in the browser while they go on; changes nothing.

    \b
    Examples:
      fedlsvi watch runs                    regret, rounds and traffic of every run below runs/
      fedlsvi watch sepsis                  the sites of a federation, at its server
      fedlsvi watch kits/north              what left a site, and what it refused
    """
    from threading import Event

    from fedlsvi.live.server import LivePage, is_loopback, new_token
    from fedlsvi.live.watcher import Watcher

    folder = Path(place)
    token = "" if is_loopback(address) else new_token()
    title = f"fedlsvi: {folder.absolute().name}"
    with LivePage(Watcher(folder), title, address, port, token, names) as live:
        print(f"open {live.url}", flush=True)
        Event().wait()
    return 0
