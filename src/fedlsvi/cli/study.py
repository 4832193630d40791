"""`fedlsvi study`, `contribute` and `merge`: sites learn together by mail, with no server. `attest`
and `recheck`: anyone can check it again."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import (
    Actions,
    Command,
    Name,
    column_option,
    command,
    format_option,
    option,
    parse_columns,
)
from fedlsvi.cli.text import as_json
from fedlsvi.errors import FolderExists, InvalidInput

SITE, STATEMENT, RECIPE = ".site", "statement.json", "recipe.toml"
"""How the file with a site's public key ends, what a merge is attested in, and in which file it
writes a recipe whose edges are agreed on."""

kit_option = option("--kit", default=".", metavar="FOLDER", type=click.Path(), section="Site",
                    help="The folder that this site keeps for its studies.")  # fmt: skip
study_argument = click.argument("study", type=click.Path(), metavar="STUDY",
                                help="The study.toml that all sites have.")  # fmt: skip


@click.group()
def study() -> None:
    """Agree on a question that sites answer by mail, one file each."""


action = partial(study.command, cls=Command)


@action()
@click.argument("name", metavar="SITE", help="What this site is called.")
@kit_option
@format_option
def key(name: str, kit: str, form: str) -> int:
    """Make this site's key, which signs its files, and a file with the public one.

    \b
    Example:
      fedlsvi study key north --kit north
    """
    from fedlsvi.remote.federation import LETTERS, NAME
    from fedlsvi.remote.mail.site_key import SiteKeyPair
    from fedlsvi.storage import files

    if not NAME.fullmatch(name):
        raise InvalidInput(f"the name of a site must be {LETTERS}, got {name!r}", code="bad-site")
    files.make_private(Path(kit))
    pair, path = SiteKeyPair(Path(kit), make=True), Path(kit) / f"{name}{SITE}"
    files.write(path, f'{name} = "{pair.fingerprint}"\n'.encode())
    return _print(form, {"site": name, "key": pair.public, "file": str(path)}, [
        f"send {path} to the organiser; the key itself stays in {kit}/fedlsvi/.secrets",
        "then read them this on the phone, and compare it with the study:",
        f"  {pair.fingerprint}",
    ])  # fmt: skip


@action()
@click.argument("file", required=False, type=click.Path(), help="TOML: any part of the study.")
@option("--site", "sites", multiple=True, metavar="FILE", help="NAME.site of a site. Repeatable.")
@option("--name", metavar="NAME", help="What the study is called.")
@option("--horizon", type=click.IntRange(min=1), metavar="H", help="Steps per episode.")
@option("--episodes", type=click.IntRange(min=1), metavar="N", help="Of each site at most.")
@option("--states", type=click.IntRange(min=1), metavar="S", help="Number of states.")
@option("--bin", "bins", multiple=True, metavar="COLUMN=E1,E2,…",
        help="Edges of a column's bins, in place of --states. Repeatable.")  # fmt: skip
@option("--recipe", metavar="FILE", type=click.Path(),
        help="TOML: how tables of a clinic become episodes, in place of sizes.")  # fmt: skip
@option("--actions", type=Actions(), metavar="A",
        help="Number of actions, or names in the order of their numbers, with commas.")  # fmt: skip
@option("--reward-range", type=(float, float), metavar="LOW HIGH", show_default="0 1",
        help="Rewards that are mapped to 0 and 1.")  # fmt: skip
@option("--features", type=Name("features"), metavar="NAME", show_default="one-hot",
        help="Feature map: a name from `fedlsvi list features`.")  # fmt: skip
@option("--set", "changes", multiple=True, metavar="KEY=VALUE",
        help="Setting of pevi, e.g. beta=0.3 or privacy.epsilon=1. Repeatable.")  # fmt: skip
@option("--out", default="study.toml", metavar="FILE", help="The study; must not exist.")
@format_option
def init(
    file: str | None, sites: tuple[str, ...], recipe: str | None, changes: tuple[str, ...],
    out: str, form: str, **given: Any,
) -> int:  # fmt: skip
    """Write study.toml, which every site needs. Sums are secure where three sites or more take part
    and nothing else is said.

    \b
    Example:
      fedlsvi study init --name ward --horizon 4 --episodes 500 --states 6 --actions 3 \\
        --site north.site --site south.site --site east.site
    """
    from fedlsvi.config import FEWEST_SITES
    from fedlsvi.remote.mail.study import Study, grouped
    from fedlsvi.storage import settings_file

    if Path(out).exists():
        raise FolderExists(f"{out} exists: a study is never changed; give another --out")
    table: dict[str, Any] = {} if file is None else settings_file.read(file)
    ours = {"states": "n_states", "reward_range": "reward_range"}
    bins, features = given.pop("bins"), given.pop("features")
    table |= {ours.get(k, k): v for k, v in given.items() if v is not None}
    if bins:
        table["bins"] = {column: _edges(column, text) for column, text in map(_pair, bins)}
    if features is not None:
        table["features"] = {"name": features}
    if "reward_range" in table:
        table["reward_range"] = [float(v) for v in table["reward_range"]]
    if sites:
        table["sites"] = {}
        for path in sites:
            table["sites"] |= settings_file.read(path)
    settings: dict[str, Any] = dict(table.get("settings", {}))
    for change in changes:
        settings_file.assign(settings, change)
    if recipe is not None:
        _follow(recipe, table, settings)
    if "aggregation" not in settings:
        many = len(table.get("sites", {})) >= FEWEST_SITES
        settings["aggregation"] = "secure" if many else "exact"
    made = Study.of({**table, "settings": settings})
    made.write(out)
    step = ["--keys, then with --data"] if made.secure else ["--data"]
    return _print(form, {"file": out, "digest": made.digest, "sites": made.names}, [
        f"wrote {out}: {made.name} with {plural(len(made.sites), 'site')}, {', '.join(made.names)}",
        f"send it to every site, and compare its digest: {grouped(made.digest)}",
        f"each site then runs `fedlsvi contribute` with {step[0]}",
    ])  # fmt: skip


@command()
@study_argument
@click.argument("keys", nargs=-1, type=click.Path(), metavar="[KEYS]...",
                help="With secure sums: the .keys files of all sites.")  # fmt: skip
@kit_option
@option("--data", metavar="FILE", type=click.Path(), section="Site",
        help="This site's records: a Parquet or CSV file, or a folder with the tables of the "
             "study's recipe.")  # fmt: skip
@option("--layout", metavar="FILE", type=click.Path(), section="Site",
        help="TOML: where the recipe's columns are in this site's tables.")  # fmt: skip
@column_option
@option("--keys", "first", is_flag=True, help="Write this site's .keys file: what goes first.")
@option("--end", is_flag=True,
        help="The study was merged: delete what hid this site's sums.")  # fmt: skip
@option("--yes", is_flag=True, help="Write the file without asking.")
@option("--out", metavar="FILE", show_default="SITE.keys or SITE.contribution", section="Output",
        help="The file to send.")  # fmt: skip
@format_option
def contribute(
    study: str, keys: tuple[str, ...], kit: str, data: str | None, layout: str | None,
    column: tuple[str, ...], first: bool, end: bool, yes: bool, out: str | None, form: str,
) -> int:  # fmt: skip
    """Write this site's file of a study: signed sums, and no record.

    It shows what will leave and asks before it writes. The same records give the same file again.

    \b
    Examples:
      fedlsvi contribute study.toml --keys
      fedlsvi contribute study.toml --data records.parquet *.keys
    """
    from fedlsvi.remote.mail.letter import CONTRIBUTION, KEYS, Sealed
    from fedlsvi.remote.mail.site import MailSite
    from fedlsvi.remote.mail.study import Study
    from fedlsvi.storage import files, settings_file

    if (data is not None) + first + end != 1:
        raise InvalidInput("give one of --keys, --data and --end", code="bad-contribute")
    site = MailSite(Study.read(study), kit)
    if end:
        site.end()
        return _print(form, {"site": site.site}, [f"deleted the secrets of {site.study.called}"])
    if first:
        path = Path(out or f"{site.site}.{KEYS}")
        files.write(path, site.keys())
        return _print(form, {"file": str(path)}, [
            f"wrote {path}: send it to all sites of the study, and wait for theirs"
        ])  # fmt: skip
    roster = site.roster([Sealed.read(path, site.study) for path in keys])
    where = None if layout is None else settings_file.read(layout)
    records = site.read(data, parse_columns(column) or None, where)
    for why, n in records.left_out.items():  # what a person should know before anything leaves
        print(f"fedlsvi: notice: left out: {n:,} {why}", file=sys.stderr)
    facts = site.leaving(records)
    if not yes:
        print("\n".join(_leaving(facts)), file=sys.stderr)
        if not click.confirm("Write the file?", err=True):
            print("fedlsvi: nothing was written", file=sys.stderr)
            return 1
    path = Path(out or f"{site.site}.{CONTRIBUTION}")
    files.write(path, site.contribute(records, roster))
    return _print(form, {**facts, "file": str(path)}, [
        *(_leaving(facts) if yes else []), f"wrote {path}: send it to whoever merges the study"
    ])  # fmt: skip


@command()
@study_argument
@click.argument("contributions", nargs=-1, required=True, type=click.Path(),
                help="The .contribution files of all sites.")  # fmt: skip
@option("--out", metavar="FOLDER", show_default="runs/STUDY", section="Output",
        help="Run folder.")  # fmt: skip
@format_option
def merge(study: str, contributions: tuple[str, ...], out: str | None, form: str) -> int:
    """Check the files of all sites, add them up, and write a run folder with the policy.

    \b
    Example:
      fedlsvi merge study.toml *.contribution --out runs/ward
    """
    from fedlsvi.remote.mail import POLICY
    from fedlsvi.remote.mail.merge import merge as merge_files
    from fedlsvi.remote.mail.study import Study
    from fedlsvi.report.model_card import write_card
    from fedlsvi.storage import files

    agreed = Study.read(study)
    folder = Path(out) if out is not None else Path("runs") / agreed.called

    def notify(text: str) -> None:
        print(f"fedlsvi: notice: {text}", file=sys.stderr)

    run = merge_files(agreed, contributions, folder, notify)
    if agreed.agreed is not None and agreed.open:
        from fedlsvi.logs.histograms import with_edges
        from fedlsvi.storage import settings_file

        closed, path = with_edges(agreed.agreed, run.gram_packed, run.w), folder / RECIPE
        files.write(path, settings_file.dump(closed.table()).encode())
        edges = {one.name: one.edges for one in closed.variables}
        return _print(form, {"folder": str(folder), "recipe": str(path), "edges": edges}, [
            *(f"{name}: {', '.join(f'{e:g}' for e in cut or ())}" for name, cut in edges.items()),
            f"the recipe with these edges is {path}: make the study of it",
        ])  # fmt: skip
    card = write_card(run, folder)
    row = {"folder": str(folder), "sites": agreed.names, "scalars": run.ledger.total,
           "card": str(card)}  # fmt: skip
    policy = f"the policy is in {folder / POLICY}"
    if not files.exists(folder / POLICY):  # features of vectors belong to an environment
        policy = f'the model is there: fedlsvi.load("{folder}", env=…) has the policy'
    return _print(form, row, [
        f"merged {plural(len(agreed.sites), 'site')} into {folder}: "
        f"{plural(run.ledger.total, 'scalar')}",
        policy,
        f"what it was learned from, and what it is good for, is in {card}",
        f"`fedlsvi report {folder}` draws it",
    ])  # fmt: skip


@command()
@click.argument("run", type=click.Path(), help="A run folder that `fedlsvi merge` wrote.")
@option("--out", metavar="FILE", show_default="RUN/statement.json", section="Output",
        help="The statement.")  # fmt: skip
@format_option
def attest(run: str, out: str | None, form: str) -> int:
    """Write a statement with which anyone who has the files can check a merged study again.

    \b
    Example:
      fedlsvi attest runs/ward
    """
    from fedlsvi.remote.mail.attest import attest as attest_run

    statement, path = attest_run(run), Path(out) if out is not None else Path(run) / STATEMENT
    statement.write(path)
    steps = plural(len(statement.models), "step")
    return _print(form, {"file": str(path), "digest": statement.digest}, [
        f"wrote {path}: {plural(len(statement.files), 'file')} and the models of {steps}",
        f"`fedlsvi recheck {path} FILES` merges the files again and compares",
    ])  # fmt: skip


@command()
@click.argument("statement", type=click.Path(), help="What `fedlsvi attest` wrote.")
@click.argument("uploads", nargs=-1, required=True, type=click.Path(),
                help="The files that were merged.")  # fmt: skip
@format_option
def recheck(statement: str, uploads: tuple[str, ...], form: str) -> int:
    """Check that every model of a statement follows from the files, to the last bit.

    \b
    Example:
      fedlsvi recheck runs/ward/statement.json *.contribution
    """
    from fedlsvi.remote.mail.attest import Statement
    from fedlsvi.remote.mail.attest import recheck as check_again

    study = check_again(Statement.read(statement), uploads)
    return _print(form, {"follows": True, "digest": study.digest}, [
        f"yes: every model of {study.called} follows from the files of "
        f"{plural(len(study.sites), 'site')}, to the last bit"
    ])  # fmt: skip


def _follow(path: str, table: dict[str, Any], settings: dict[str, Any]) -> None:
    """The sizes of a study by a recipe. While that is open, each of its variables takes an episode
    of every stay."""
    from fedlsvi.logs.recipe import Recipe
    from fedlsvi.remote.mail.study import sizes_of
    from fedlsvi.storage import settings_file

    recipe = Recipe.of(settings_file.read(path))
    table |= {"recipe": recipe.table(), **sizes_of(recipe)}
    if recipe.open:
        each = len(recipe.open)
        if isinstance(table.get("episodes"), int):
            table["episodes"] *= each
        if isinstance(privacy := settings.get("privacy"), dict):
            stays = privacy.get("episodes_per_user", 1)
            settings["privacy"] = {**privacy, "unit": "user", "episodes_per_user": stays * each}


def _leaving(facts: dict[str, Any]) -> list[str]:
    """What will leave, for people."""
    lines = [
        f"{facts['site']} answers {facts['study']} with sums over "
        f"{plural(facts['episodes'], 'episode')}: {plural(facts['scalars'], 'scalar')}, "
        f"{plural(facts['bytes'], 'byte')}",
        f"the fewest episodes behind a step: {facts['fewest']:,}",
        f"sums: {facts['sums']}",
    ]
    if facts["epsilon"] is None:
        lines.append("differential privacy: none")
        if facts["studies_before"]:
            lines.append(
                f"sums have left before, for {', '.join(facts['studies_before'])}: of records in "
                "both, whoever has both sums learns how they differ"
            )
        return lines
    return [
        *lines,
        f"differential privacy: ε = {facts['epsilon']:g} at δ = {facts['delta']:g} for "
        f"{facts['unit']}; these data will have spent {facts['epsilon_after']:.4g} in all, "
        f"{facts['epsilon_before']:.4g} before",
    ]


def _pair(text: str) -> tuple[str, str]:
    column, equals, edges = text.partition("=")
    if not equals:
        raise InvalidInput(f"--bin {text}: write COLUMN=E1,E2, e.g. lactate=2,4", code="bad-bins")
    return column, edges


def _edges(column: str, text: str) -> list[float]:
    try:
        return [float(edge) for edge in text.split(",")]
    except ValueError:
        raise InvalidInput(
            f"--bin {column}={text}: write numbers, e.g. lactate=2,4", code="bad-bins"
        ) from None


def _print(form: str, row: dict[str, Any], lines: list[str]) -> int:
    print(as_json(row) if form == "json" else "\n".join(lines))
    return 0
