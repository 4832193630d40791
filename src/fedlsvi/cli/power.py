"""`fedlsvi power`: how many patients a study of records takes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from fedlsvi.cli.command import command, format_option, named_folder, new_folder, option
from fedlsvi.cli.experiments import jobs_option
from fedlsvi.cli.offline import Logs, log_options_with, made_features, pevi_options
from fedlsvi.cli.text import as_json, columns
from fedlsvi.errors import InvalidInput


class Numbers(click.ParamType[list[int]]):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """The numbers, each at least 1."""
        if isinstance(value, str):
            words = value.replace(" ", "").split(",")
            if all(word.isdecimal() and int(word) for word in words):
                return [int(word) for word in words]
        self.fail(f"{value!r} is not a list of numbers such as 100,300,1000", param, ctx)


@command()
@log_options_with(required=False)
@option(
    "--sites",
    type=click.IntRange(min=1),
    metavar="M",
    section="Study",
    show_default="one per log",
    help="Number of sites.",
)
@option(
    "--patients",
    type=Numbers(),
    metavar="N,N,…",
    default="30,100,300,1000",
    section="Study",
    help="Patients of each site; every number is a study of its own.",
)
@option(
    "--margin",
    type=click.FloatRange(min=0.0),
    metavar="X",
    default=0.0,
    section="Study",
    help="By how much the learned policy is to beat today's practice.",
)
@option(
    "--studies",
    type=click.IntRange(min=1),
    metavar="N",
    default=300,
    section="Study",
    help="How many are simulated at each size.",
)
@option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    section="Study",
    help="Decides the records; noise of privacy has no seed.",
)
@pevi_options
@jobs_option
@option(
    "--out", metavar="FOLDER", section="Output", show_default="runs/power", help="Where to write."
)
@format_option
def power(
    logs: Logs, sites: int | None, patients: list[int], margin: float, studies: int, seed: int,
    features: str | None, changes: tuple[str, ...], jobs: int | None, out: str | None, form: str,
) -> int:  # fmt: skip
    """Simulate a study of records at several sizes: how likely it is to beat today's practice.

    Studies are simulated in a model of the records; without records in --env, whose actions today
    are random. It writes power.json, protocol.md and power.png.

    \b
    Examples:
      fedlsvi power north.parquet south.parquet --patients 100,300 --margin 0.02
      fedlsvi power --env river-swim --sites 5 --set aggregation=secure
    """  # fmt: skip
    from fedlsvi.envs.gym.convert import as_environment
    from fedlsvi.experiments import power as simulated
    from fedlsvi.storage import files

    if not logs.records and logs.env is None:
        raise InvalidInput("there is nothing to simulate: give records, or --env",
                           code="nothing-to-simulate")  # fmt: skip
    settings, phi = made_features(features, changes)
    known = {"horizon": logs.horizon, "reward_range": logs.reward_range}
    reality: dict[str, Any] = {
        "data": logs.worlds() if logs.records else None,
        "env": None if logs.records else as_environment(logs.env, **known),  # type: ignore[arg-type]
    }
    found = simulated.power(
        sites=sites, patients=patients, margin=margin, studies=studies, seed=seed, jobs=jobs,
        features=phi, **reality, **settings,
    )  # fmt: skip
    with ExitStack() as made:
        folder = made.enter_context(new_folder(Path("runs/power"))) if out is None else None
        folder = folder or named_folder(str(out))
        files.make_folder(folder)
        files.write_json(folder / "power.json", found.to_dict())
        files.write(folder / "protocol.md", found.markdown().encode())
        found.plot(folder / "power.png")
    if form == "json":
        print(as_json({"folder": str(folder)} | found.to_dict()))
        return 0
    header, rows = found.table()
    print("\n".join(columns([header, *rows], ">")))
    print(f"\n{found.paragraph()}\n\nfolder: {folder}    figure: {folder / 'power.png'}")
    return 0
