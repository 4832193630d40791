"""How many files one has to read to follow a run.

    walk                       here      commit 2fa7fd4    wanted
    `learn` – first episodes     43                  29        20
    a small `fedlsvi run`        69                  49        42
    an upload over frames        24                  14        12
    the same, of three sites     28                   –         –

The targets are missed, and the walks are longer than at that commit, whose source, memory and
policy were one class for each kind of problem. A walk counts files in which a function is called,
so that importing later makes none shorter. These tests keep the walks from growing further.
"""

from __future__ import annotations

from benchmarks.walk import files_of_a_run, files_of_an_upload, files_of_the_first_episodes


def test_the_way_to_the_first_episodes_does_not_grow() -> None:
    files = files_of_the_first_episodes()
    assert "learner.py" in files
    assert "experience/experience.py" in files
    assert len(files) <= 43, sorted(files)


def test_the_way_of_a_run_does_not_grow() -> None:
    files = files_of_a_run()
    assert "storage/run_writer.py" in files
    assert len(files) <= 69, sorted(files)


def test_the_way_of_an_upload_does_not_grow() -> None:
    plain, of_sites = files_of_an_upload(), files_of_an_upload(as_sites=True)
    assert "remote/guard.py" in plain
    assert len(plain) <= 24, sorted(plain)
    assert plain | {"remote/journal.py", "remote/audit.py"} <= of_sites
    assert len(of_sites) <= 28, sorted(of_sites)
