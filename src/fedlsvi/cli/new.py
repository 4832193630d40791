"""`fedlsvi new`: a file to begin with, which runs and passes its check as it is.

Templates are Python files beside this module; NewName, new-name and new_name in them become the
name that was asked for.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import click

from fedlsvi.cli.command import command, option
from fedlsvi.errors import FolderExists, InvalidInput

TEMPLATES = Path(__file__).parent / "templates"
ENVIRONMENTS = ("table", "vectors", "gymnasium")


@command()
@click.argument("what", type=click.Choice(["environment", "features", "algorithm", "study"]),
                help="What to begin.")  # fmt: skip
@click.argument("name", help="What to call it, e.g. my-ward.")
@option(
    "--kind", type=click.Choice(ENVIRONMENTS), show_default="table",
    help="Of environments: numbered states with known laws, states that are vectors, or a "
    "Gymnasium environment.",
)  # fmt: skip
def new(what: str, name: str, kind: str | None) -> int:
    """Write a file to begin with: an environment, features, an algorithm or a study.

    `fedlsvi new environment my-ward` writes my_ward.py into this folder. It runs and passes its
    check as it is; change it bit by bit. A study is a script that compares settings over seeds.
    """
    if kind is not None and what != "environment":
        raise click.UsageError(f"--kind is for environments: leave it out for a {what}")
    template = (kind or "table") if what == "environment" else what
    path = Path(f"{_module(name)}.py")
    text = rendered(template, name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FolderExists(
            f"{path} already exists: choose another name", code="file-exists"
        ) from None
    print(f"{path} runs as it is: python {path}\nIts first lines say what else to do with it.")
    return 0


def rendered(template: str, name: str) -> str:
    """The text of a template with this name in it."""
    text = (TEMPLATES / f"{template}.py").read_text(encoding="utf-8")
    title = "".join(part[:1].upper() + part[1:] for part in re.split("[-_]", name))
    for placeholder, word in (
        ("NewName", title), ("new-name", name), ("new_name", name.replace("-", "_"))
    ):  # fmt: skip
        text = text.replace(placeholder, word)
    return text


def _module(name: str) -> str:
    """The module of a name, which Python can import and no other module has."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z](-?[a-z0-9_]+)*", name) or not module.isidentifier():
        raise InvalidInput(
            f"{name!r} cannot be a name: use small letters, digits and hyphens, as in my-ward",
            code="bad-name",
        )
    if Path(f"{module}.py").exists():
        return module
    if find_spec(module) is not None:
        raise InvalidInput(
            f"another module is already called {module}: choose another name",
            code="module-name-taken",
        )
    return module
