"""What a site's data have been used for adds up over runs, and is never forgotten."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from accounting import google
from expecting import refused
from fedlsvi.core.privacy_accountant import epsilon_of
from fedlsvi.errors import DamagedFile, FedLSVIError, InvalidSetting, MessageRefused
from fedlsvi.remote import lost_bookings
from fedlsvi.remote.account import ACCOUNT, Account, Booking, Together, booking_of
from fedlsvi.remote.release_log import ReleaseLog
from fedlsvi.remote.requirements import Requirements
from fedlsvi.remote.site_noise import NoiseSecret, book

DELTA = 1e-6
FIRST = Booking("wards", "0" * 16, (0, 2), "episode", 1, 2.0, DELTA)
SECOND = replace(FIRST, federation="wards, again")


def test_runs_add_up(tmp_path: Path) -> None:
    """Twice μ² at the same δ: less than twice ε, more than once."""
    account = Account(tmp_path)
    assert account.spent(DELTA) == 0.0
    account.book(FIRST)
    assert account.spent(DELTA) == pytest.approx(2.0)
    account.book(SECOND)
    assert 2.0 < account.spent(DELTA) < 4.0
    again = Account(tmp_path)
    assert again.bookings == [FIRST, SECOND]
    assert again.spent(DELTA) == account.spent(DELTA)


def test_the_sum_is_that_of_another_accountant(tmp_path: Path) -> None:
    _, distributions = google()
    one = distributions.PrivacyLossDistribution
    make = getattr(one, "from_gaussian_mechanism", None) or distributions.from_gaussian_mechanism
    account, composed = Account(tmp_path), None
    for booking in (FIRST, SECOND, replace(FIRST, federation="third", epsilon=1.0)):
        account.book(booking)
        loss = make(1.0 / booking.mu, value_discretization_interval=1e-4)
        composed = loss if composed is None else composed.compose(loss)
    assert composed is not None
    expected = composed.get_epsilon_for_delta(DELTA)
    assert account.spent(DELTA) == pytest.approx(expected, rel=1e-3)


def test_a_run_is_booked_once(tmp_path: Path) -> None:
    for _ in range(3):
        Account(tmp_path).book(FIRST)
    assert Account(tmp_path).bookings == [FIRST]


def test_the_run_too_many_is_refused_and_books_nothing(tmp_path: Path) -> None:
    """[require] epsilon was a limit of each job: ε = 5 again under another name."""
    account = Account(tmp_path)
    account.book(FIRST, total=2.5, delta=DELTA)
    with refused(MessageRefused, "budget-spent"):
        account.book(SECOND, total=2.5, delta=DELTA)
    assert Account(tmp_path).bookings == [FIRST]
    account.book(FIRST, total=2.5, delta=DELTA)  # a restart of the first is not a second one


def test_two_jobs_at_once_know_of_each_other(tmp_path: Path) -> None:
    one, other = Account(tmp_path), Account(tmp_path)
    one.book(FIRST, total=2.5, delta=DELTA)
    with refused(MessageRefused, "budget-spent"):
        other.book(SECOND, total=2.5, delta=DELTA)


def test_an_unfinished_line_is_cut_off(tmp_path: Path) -> None:
    Account(tmp_path).book(FIRST)
    path = tmp_path / ACCOUNT
    path.write_bytes(path.read_bytes() + b'{"agents": [0')
    account = Account(tmp_path)
    assert account.bookings == [FIRST]
    account.book(SECOND)
    assert Account(tmp_path).bookings == [FIRST, SECOND]


@pytest.mark.parametrize("damage", ["change", "drop", "swap", "type"])
def test_no_line_is_changed_without_notice(tmp_path: Path, damage: str) -> None:
    account = Account(tmp_path)
    for booking in (FIRST, SECOND, replace(FIRST, federation="third")):
        account.book(booking)
    path = tmp_path / ACCOUNT
    lines = path.read_text().splitlines(keepends=True)
    if damage == "change":
        lines[0] = lines[0].replace('"epsilon": 2.0', '"epsilon": 0.1')
    elif damage == "drop":
        del lines[1]
    elif damage == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        lines[2] = json.dumps({**json.loads(lines[2]), "agents": "all"}) + "\n"
    path.write_text("".join(lines))
    with pytest.raises(DamagedFile):
        Account(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / ACCOUNT).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FedLSVIError):
        Account(tmp_path)


def test_what_is_booked_is_the_budget_of_the_job(tmp_path: Path) -> None:
    privacy = {"unit": "user", "episodes_per_user": 3, "epsilon": 1, "delta": 1e-5}
    booking = booking_of("wards", 255, (2, 1), privacy)
    assert booking.run == "00000000000000ff"
    account = Account(tmp_path)
    account.book(booking)
    assert Account(tmp_path).bookings == [booking]
    assert math.isclose(account.spent(1e-5), 1.0)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    ("require", "job", "lacks"),
    [
        ({"total_epsilon": 3.0, "delta": DELTA}, None, "total_epsilon"),
        ({"total_epsilon": 3.0, "delta": DELTA}, {"epsilon": 1.0, "delta": DELTA}, ""),
        ({"colluders": 2}, {"epsilon": 1.0, "delta": DELTA}, "colluders of at least 2"),
        ({"colluders": 1}, {"epsilon": 1.0, "delta": DELTA}, ""),
        ({"colluders": 1}, None, "colluders of at least 1"),
        ({"episodes_per_user": 5}, {"epsilon": 1.0, "delta": DELTA}, "episodes_per_user"),
        ({"episodes_per_user": 5}, {"unit": "user", "episodes_per_user": 5}, ""),
    ],
)
def test_a_site_may_require_more_of_privacy(require: dict, job: dict | None, lacks: str) -> None:  # type: ignore[type-arg]
    said = Requirements.of(require).missing({} if job is None else {"privacy": job})
    assert (lacks in said) if lacks else said == ""


def test_a_total_needs_a_delta() -> None:
    with refused(InvalidSetting, "bad-delta"):
        Requirements.of({"total_epsilon": 3.0})


def test_runs_that_protect_single_episodes_count_for_each_of_a_user(tmp_path: Path) -> None:
    """μ of somebody with m episodes is m times that of one; a run for users of m counts once."""
    account, user = Account(tmp_path), replace(SECOND, unit="user", episodes_per_user=3)
    assert FIRST.mu_for(3) == pytest.approx(3 * FIRST.mu)
    assert user.mu_for(3) == user.mu == user.mu_for(1)
    account.book(FIRST)
    account.book(user)
    mu = math.hypot(3 * FIRST.mu, user.mu)
    assert account.spent(DELTA, episodes=3) == pytest.approx(epsilon_of(mu, DELTA))
    limit = Requirements.of(
        {"unit": "user", "episodes_per_user": 3, "total_epsilon": 7.0, "delta": DELTA}
    ).limit
    with refused(MessageRefused, "budget-spent"):
        account.book(replace(user, federation="third"), **limit)
    account.book(replace(user, federation="third"), **limit | {"episodes": 1})


# account and secrets know of each other

RUN = int(FIRST.run, 16)


def test_a_run_that_is_booked_gets_no_second_noise(tmp_path: Path) -> None:
    """Its secrets are lost and its records come back from a backup: with new noise the difference
    of two releases would have twice the budget that is booked."""
    secrets = tmp_path / ".secrets" / "wards"
    book(Account(tmp_path), FIRST, secrets)
    key = NoiseSecret(RUN, secrets).key
    book(Account(tmp_path), FIRST, secrets)  # a restart
    assert NoiseSecret(RUN, secrets).key == key
    shutil.rmtree(secrets)
    with refused(DamagedFile, "noise-lost"):
        book(Account(tmp_path), FIRST, secrets)
    assert not list(secrets.glob("noise-*"))


def test_a_job_that_could_not_be_booked_may_come_again(tmp_path: Path) -> None:
    """A kill between secret and booking, or a refusal, leaves a secret that hid nothing."""
    secrets = tmp_path / ".secrets" / "wards"
    secrets.mkdir(parents=True)
    NoiseSecret(RUN, secrets)
    book(Account(tmp_path), FIRST, secrets)
    assert Account(tmp_path).bookings == [FIRST]
    with refused(MessageRefused, "budget-spent"):
        book(Account(tmp_path), SECOND, tmp_path / ".secrets" / "again", total=2.5, delta=DELTA)
    assert not (tmp_path / ".secrets" / "again").exists()


def test_an_account_from_before_is_noticed(tmp_path: Path) -> None:
    """A restored account would forget what left since; without noise nothing is forgotten."""
    book(Account(tmp_path), FIRST, tmp_path / ".secrets" / "wards")
    older = (tmp_path / ACCOUNT).read_bytes()
    later = replace(SECOND, run=f"{7:016x}")
    book(Account(tmp_path), later, tmp_path / ".secrets" / "again")
    for name, run in (("wards", RUN), ("again", 7), ("wards", 8)):  # 8 is secure without noise
        ReleaseLog(run, (0, 2), tmp_path / ".secrets" / name, durable=False).use(
            1, 1, bytes(32), bytes(32)
        )
    third = replace(FIRST, federation="third", run=f"{9:016x}")
    book(Account(tmp_path), third, tmp_path / ".secrets" / "third")
    (tmp_path / ACCOUNT).write_bytes(older)
    with refused(DamagedFile, "bookings-lost", "run 7"):
        book(Account(tmp_path), third, tmp_path / ".secrets" / "third")


# runs without noise


PLAIN = booking_of("trial", 3, (0, 2), None)


def test_a_run_without_noise_is_booked_and_no_limit_holds_after_it(tmp_path: Path) -> None:
    account = Account(tmp_path)
    account.book(FIRST)
    account.book(PLAIN)
    again = Account(tmp_path)
    assert (again.bookings, again.unbounded) == ([FIRST, PLAIN], [PLAIN])
    assert again.spent(DELTA) == pytest.approx(2.0)  # of the private ones
    with refused(MessageRefused, "budget-spent"):
        again.book(SECOND, total=100.0, delta=DELTA)
    again.book(FIRST, total=100.0, delta=DELTA)  # a restart
    again.book(SECOND)
    assert Account(tmp_path).bookings == [FIRST, PLAIN, SECOND]


# sums without noise

NOTHING = Requirements()


def summed(federation: str, **counted: int) -> Together:
    """A site's records in the sums of a job."""
    every = {"episodes": 30, "horizon": 3, "min_round": 20}
    return Together(federation, "the records", ("east", "north", "west"), every | counted)


def test_the_same_data_are_in_sums_of_one_set_of_sites(tmp_path: Path) -> None:
    """With the three sums of {0, 1}, {0, 2} and {1, 2}, each with a site that works with the
    server, it had what site 0 sent alone."""
    account, allows = Account(tmp_path), Requirements(other_sites=True)
    account.take_part(summed("wards"), NOTHING)
    account.take_part(summed("wards-2"), NOTHING)
    played = replace(summed("wards"), data="the episodes of seed 2", sites=("east", "x", "y"))
    Account(tmp_path).take_part(played, NOTHING)
    for sites in (("east", "south", "west"), ("east", "north", "south", "west")):
        with refused(MessageRefused, "other-sites"):
            Account(tmp_path).take_part(replace(summed("wards-3"), sites=sites), NOTHING)
    others = replace(summed("wards-3"), sites=("east", "south", "west"))
    Account(tmp_path).take_part(others, allows)
    account.book(FIRST)
    again = Account(tmp_path)
    assert [known.federation for known in again.together] == ["wards", "wards", "wards-3"]
    assert again.bookings == [FIRST]


@pytest.mark.parametrize("what", ["episodes", "horizon", "min_round"])
@pytest.mark.parametrize("hidden", ["by sites", "by a floor"])
def test_no_second_sum_counts_one_episode_less(tmp_path: Path, what: str, hidden: str) -> None:
    """Of two sums over 30 and 29 episodes the difference is one, and where one site alone has so
    many, one person's."""
    first = summed("wards") if hidden == "by sites" else replace(summed("wards"), sites=())
    fewer = replace(first, federation="b", counted={**first.counted, what: first.counted[what] - 1})
    Account(tmp_path).take_part(first, NOTHING)
    with refused(MessageRefused, "other-episodes", what):
        Account(tmp_path).take_part(fewer, NOTHING)
    with refused(MessageRefused, "other-episodes"):  # nor does the other protection allow it
        sites = () if first.sites else ("east", "north", "west")
        Account(tmp_path).take_part(replace(fewer, sites=sites), NOTHING)
    assert Account(tmp_path).together == [first]
    Account(tmp_path).take_part(fewer, Requirements(other_episodes=True))
    assert Account(tmp_path).together == [first, fewer]


def test_an_estimate_from_other_records_counts_for_itself(tmp_path: Path) -> None:
    """It may be added to a job later, from as many as one likes; another one from fewer may not."""
    account, held_out = Account(tmp_path), {"held-out episodes": 12}
    account.take_part(summed("wards"), NOTHING)
    account.take_part(summed("wards", **held_out), NOTHING)
    account.take_part(summed("wards"), NOTHING)
    assert len(account.together) == 2
    with refused(MessageRefused, "other-episodes", "held-out episodes = 12"):
        account.take_part(summed("wards", **{"held-out episodes": 11}), NOTHING)


def test_an_account_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It did not say how many episodes were summed up: the same sites may go on, and from then on
    it is known."""
    account = Account(tmp_path)
    account._append({"federation": "a", "data": "the records", "sites": list(summed("a").sites)})
    again = Account(tmp_path)
    assert again.together == [replace(summed("a"), counted={})]
    again.take_part(summed("a"), NOTHING)
    with refused(MessageRefused, "other-episodes"):
        Account(tmp_path).take_part(summed("b", episodes=29), NOTHING)


def test_another_estimate_of_the_same_run_is_booked(tmp_path: Path) -> None:
    """Its passes have noise of their own; the same one again has the same."""
    account, limit = Account(tmp_path), {"total": 2.5, "delta": DELTA}
    estimate = replace(FIRST, estimate="1" * 64)
    for _ in range(2):
        account.book(estimate, **limit)
    with refused(MessageRefused, "budget-spent"):
        account.book(replace(FIRST, estimate="2" * 64), **limit)
    assert Account(tmp_path).bookings == [estimate]


def test_a_private_run_without_a_limit_warns_of_a_lost_account(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own noise protects it; what all runs spend together nobody can say."""
    lost_bookings.mark(tmp_path)
    limit = {"total": 9.0, "delta": DELTA}
    with refused(DamagedFile, "bookings-lost"):
        book(Account(tmp_path), FIRST, tmp_path / ".secrets" / "wards", **limit)
    assert Account(tmp_path).bookings == []
    book(Account(tmp_path), FIRST, tmp_path / ".secrets" / "wards")
    assert [getattr(record, "code", "") for record in caplog.records] == ["bookings-lost"]
    lost_bookings.state(tmp_path, 0.0, DELTA)
    caplog.clear()
    book(Account(tmp_path), SECOND, tmp_path / ".secrets" / "again", **limit)
    assert not caplog.records
