"""`fedlsvi episodes`: the tables of a clinic as a log."""

from __future__ import annotations

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import command, format_option, option
from fedlsvi.cli.text import as_json


@command()
@click.argument("recipe", type=click.Path(), help="TOML: how the tables become episodes.")
@click.argument("tables", type=click.Path(), help="A folder with the tables, or the only one.")
@option("--layout", metavar="FILE", type=click.Path(),
        help="TOML: where the recipe's columns are in these tables.")  # fmt: skip
@option("--out", required=True, metavar="FILE", section="Output",
        help="The log: a .parquet or .csv file.")  # fmt: skip
@format_option
def episodes(recipe: str, tables: str, layout: str | None, out: str, form: str) -> int:
    """Turn time-stamped rows of stays into episodes, by a recipe that all sites share.

    \b
    Example:
      fedlsvi episodes recipe.toml ward.csv --out records.parquet
    """
    from fedlsvi.logs.clinical import episodes as episodes_in
    from fedlsvi.logs.recipe import Recipe
    from fedlsvi.logs.recording import write_records
    from fedlsvi.storage import settings_file

    agreed = Recipe.of(settings_file.read(recipe))
    where = None if layout is None else settings_file.read(layout)
    made = episodes_in(agreed, tables, where)
    write_records(made.columns, out)
    row = {"file": out, "stays": made.kept, "rows": len(made.columns["step"]),
           "states": agreed.n_states, "left_out": made.left_out}  # fmt: skip
    first, *others = made.lines()
    lines = [f"wrote {out}: {first}, {plural(agreed.n_states, 'state')}", *others]
    if agreed.open:
        lines.append("the recipe is open: these are values for bins, with a step each")
    else:
        row["actions"] = agreed.action_names
        lines.append(f"actions: {', '.join(agreed.action_names)}")
    print(as_json(row) if form == "json" else "\n".join(lines))
    return 0
