"""Metrics: Prometheus reads what the run counted, and alerts and dashboard use what there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import RiverSwim
from fedlsvi.errors import InvalidInput
from fedlsvi.observers.prometheus import Exporter, Prometheus
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.metrics import fill
from fedlsvi.remote.server_status import RunStatus, SiteStatus, of_places
from patience import PATIENCE, wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
SITES = [
    SiteStatus("north", 2, "here", heard=99.0, round=7, up=3000, down=4000),
    SiteStatus("south", 1, "awaited", "Stop, round 8", 90.0, 91.0, 7, 10, 20, {"bad-psd": 2}, "x"),
]
STATUS = RunStatus(
    "wards", "job-1", "running", "", 1.0, 100.0, 7, 70, 400, 7, 98.0,
    {"up_stats": 50, "down_model": 60, "signal": 4}, {"explore": 1.5}, 0.75, [], SITES,
)  # fmt: skip

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(port: int) -> Samples:
    """The samples of the page, as Prometheus reads them."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_a_run_is_served_while_it_goes_on() -> None:
    """Numbers are those of the result, and of each round when it ended."""
    page, seen = Prometheus(0, run="river"), list[float]()
    run = FedLSVI(2).learn(
        RiverSwim(3, 4), 60, progress=False,
        observers=[page, lambda record: seen.append(
            sample(scraped(page.port), "fedlsvi_rounds_total", run="river"))],
    )  # fmt: skip
    assert seen == [record.k for record in run.records]
    with pytest.raises(OSError, match="refused"):  # the run has closed it
        scraped(page.port)
    again = Prometheus(0, run="river")
    try:
        for record in run.records:
            again(record)
        again.of("other")(run.records[0])
        found = scraped(again.port)
    finally:
        again.close()
    assert sample(found, "fedlsvi_episodes_total", run="river") == 60
    assert sample(found, "fedlsvi_regret", run="river") == run.records[-1].regret
    scalars = [n for (name, labels), n in found.items()
               if name == "fedlsvi_scalars_total" and ("run", "river") in labels]  # fmt: skip
    assert sum(scalars) == run.ledger.total
    spent = sum(record.seconds["explore"] for record in run.records)
    assert sample(
        found, "fedlsvi_phase_seconds_total", run="river", phase="explore"
    ) == pytest.approx(spent)
    assert sample(found, "fedlsvi_rounds_total", run="other") == run.records[0].k


def test_a_federation_and_its_sites() -> None:
    exporter = Exporter(fill(lambda: [STATUS]), 0)
    try:
        found = scraped(exporter.port)
    finally:
        exporter.close()
    south = {"run": "wards", "site": "south"}
    assert sample(found, "fedlsvi_site_state", **south, state="awaited") == 1
    assert sample(found, "fedlsvi_site_state", **south, state="here") == 0
    assert sample(found, "fedlsvi_site_heard_timestamp_seconds", **south) == 91.0
    assert sample(found, "fedlsvi_site_refused_total", **south, code="bad-psd") == 2
    assert sample(found, "fedlsvi_site_bytes_total", run="wards", site="north",
                  direction="down") == 4000  # fmt: skip
    assert sample(found, "fedlsvi_epsilon_spent", run="wards") == 0.75
    assert sample(found, "fedlsvi_run_state", run="wards", state="running") == 1


def test_a_port_in_use_and_a_folder_that_is_none_are_refused(tmp_path: Path) -> None:
    page = Prometheus(0)
    try:
        with refused(InvalidInput, "bad-port", str(page.port)):
            Prometheus(page.port)
    finally:
        page.close()
    for place in ("startup", "local", "fedlsvi/wards"):  # the kit of a site
        (tmp_path / "north" / place).mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "north", tmp_path / "north" / "fedlsvi" / "wards"):
        with refused(InvalidInput, "no-project", str(folder)):
            of_places([folder])
    (tmp_path / "north" / "startup" / "fed_server.json").touch()  # a server that has had no job
    assert of_places([tmp_path / "north"]) == []


def test_alerts_and_the_dashboard_name_metrics_that_exist() -> None:
    exporter = Exporter(fill(lambda: [STATUS]), 0)
    page = Prometheus(0, run="river")
    FedLSVI(2).learn(RiverSwim(3, 4), 20, progress=False, observers=[(lambda r: page(r))])
    try:
        names = {name for port in (exporter.port, page.port) for name, _ in scraped(port)}
    finally:
        exporter.close()
        page.close()
    names.add("fedlsvi_mean_return")  # of environments that do not know their optimum
    dashboard = json.loads((DEPLOY / "grafana" / "fedlsvi.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    for text in (*shown, *re.findall(r"expr: (?:>-\n)?(.+\n(?:  .+\n)*?)(?=        \w)", alerts)):
        used = re.findall(r"fedlsvi_\w+", text)
        assert used, text
        assert set(used) <= names
    assert alerts.count("- alert: ") == alerts.count("expr: ") >= 4


def program(name: str) -> str:
    """Where a program of Prometheus is; where it is not, fails if CI is set, else skips."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed: it is in the Debian package prometheus"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return str(found)


def test_a_missing_program_fails_where_ci_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every user: `make programs` installs by sudo."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.fail.Exception, match="not installed"):
        program("no-such-program")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        program("no-such-program")


def test_promtool_accepts_the_rules() -> None:
    for kind, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        done = subprocess.run(
            [program("promtool"), "check", kind, str(DEPLOY / "prometheus" / name)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_each_alert_fires_when_it_must_and_not_before() -> None:
    """Also where a job has done no round yet."""
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    cases = Path(__file__).with_name("alerts_fire.yml")
    names = set(re.findall(r"- alert: (\w+)", alerts))
    assert names == set(re.findall(r"alertname: (\w+)", cases.read_text()))
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(cases)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_page_and_its_alerts_fire(tmp_path: Path) -> None:
    """A server of Prometheus with our rules: it has the samples, and a site that is waited for
    becomes an alert that names it."""
    exporter, port = Exporter(fill(lambda: [STATUS]), 0), free_port()
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text().replace("for: 1m", "for: 0s")
    (tmp_path / "alerts.yml").write_text(rules)
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:9464", f"127.0.0.1:{exporter.port}")
    config = config.replace(
        "scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"
    )
    (tmp_path / "prometheus.yml").write_text(config)
    server = subprocess.Popen(
        [program("prometheus"), f"--config.file={tmp_path}/prometheus.yml",
         f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def asked(what: str) -> Any:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/api/v1/{what}") as answer:
            return json.load(answer)["data"]
        return None

    def alerts() -> dict[str, str]:
        rows = (asked("alerts") or {"alerts": []})["alerts"]
        return {row["labels"]["alertname"]: row["annotations"]["summary"] for row in rows}

    try:
        wait_until(lambda: "FedLSVISiteAway" in alerts(), "no alert")
        assert "south is awaited in wards" in alerts()["FedLSVISiteAway"]
        assert "FedLSVIJobDied" in alerts()  # the status is of 1970
        (row,) = asked("query?query=fedlsvi_rounds_total")["result"]
        assert (row["metric"]["run"], row["value"][1]) == ("wards", "7")
    finally:
        server.kill()
        server.wait()
        exporter.close()
