"""A federation on NVIDIA FLARE (extra `flare`): one cohort at each site, the server at the server.

The job carries settings and no code: both classes below are part of fedlsvi, which every party has
installed, and a site's list of allowed classes needs these two and FLARE's own two runtimes only.
An agent raises the paper's signal itself, by calling the server; the server passes the episode on,
sites that are behind run up to it and answer with their own trigger if that came earlier, and the
round ends at the minimum. A slow site changes the time and never the result.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from nvflare.collab import collab
from threadpoolctl import threadpool_limits

from fedlsvi import json_log
from fedlsvi.checks import is_integer, plural, shown
from fedlsvi.errors import FedLSVIError, InvalidInput, MessageRefused, StoreError, TransportError
from fedlsvi.observers.traffic import Traffic, TrafficWatch
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.closing_estimate import (
    already,
    estimate,
    estimate_id,
    evaluation_of,
    open_passes,
    refuse_unnamed,
)
from fedlsvi.remote.codec import peek, run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.evaluation import FramePasses, PassHandler, pass_guard, pass_id
from fedlsvi.remote.flare import job_end, job_folders
from fedlsvi.remote.flare import log as flare_log
from fedlsvi.remote.flare.received_streams import ReceivedStreams
from fedlsvi.remote.flare.revocation import Revoked
from fedlsvi.remote.flare.signing import Signer, Verifier
from fedlsvi.remote.flare.site_certificate import SiteCertificate, SiteVerifier
from fedlsvi.remote.flare.transport import JOIN, SIGNALLED, Flare, RemovedSite, SignedSite
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.server_status import ServerStatus
from fedlsvi.remote.site_status import LOG, Activity
from fedlsvi.remote.waiting import Awaited, Watch
from fedlsvi.storage import checkpoint, files

SETTINGS = "fedlsvi.toml"

SERVER = "server"
"""What FLARE calls the server in a job, whatever its host's name."""


PIECE = 256
"""Episodes after which a site first checks whether another has signalled; the pieces double."""

log = logging.getLogger(__name__)


class SiteSignals:
    """Signals between this site and the others while its cohort explores (`SignalExchange`).

    Args:
        announce: Sends the frame of a signal to the server.
    """

    def __init__(self, announce: Callable[[bytes], None]) -> None:
        self._announce = announce
        self._turn = (0, 0)  # epoch and number of the request that explores
        self._stop: int | None = None
        self._piece = PIECE
        self._lock = Lock()

    def begin(self, epoch: int, number: int) -> None:
        """The exploration that this request asks for begins."""
        with self._lock:
            if (epoch, number) != self._turn:
                self._turn, self._stop = (epoch, number), None
            self._piece = PIECE

    def until(self, t: int) -> int:
        """After episode t: where to look again; no later than where another site has signalled."""
        with self._lock:
            end, self._piece = t + self._piece, 2 * self._piece
            return end if self._stop is None else min(end, self._stop)

    def fired(self, frame: bytes) -> None:
        """An agent here signals."""
        self._announce(frame)

    def heard(self, epoch: int, number: int, t: int) -> None:
        """Another site signalled at episode t: the round ends there or before."""
        turn = (epoch, number)
        with self._lock:
            if turn > self._turn or (turn == self._turn and self._stop is None):
                self._turn, self._stop = turn, t
            elif turn == self._turn and self._stop is not None:
                self._stop = min(t, self._stop)


class Site:
    """A site's agents. Only the server may call: each of the five methods takes what it asks for
    and its signature. None returns anything but frames, the number of agents and a version."""

    def __init__(self, federation: dict[str, Any]) -> None:
        without_tensors()
        self.federation = federation
        self._endpoint: Endpoint | None = None
        self._books: Any = None
        self._activity: Activity | None = None
        self._settings: Any = None
        self._first, self._n_agents = 0, 0
        self._identity: SiteIdentity | None = None
        self._passes: PassHandler | None = None
        self._learned = False
        self._verifier: Verifier | None = None
        self._revoked: Revoked | None = None
        self._signals = SiteSignals(self._announce)

    @contextmanager
    def _for_server(self, purpose: str, content: bytes, proof: bytes) -> Iterator[None]:
        """Refuse a call that is not the server's, before anything else is looked at. Errors stay
        at the site: only their kind is told, because their text may quote a state."""
        caller = collab.caller
        try:
            if caller != SERVER:
                raise MessageRefused(f"{caller} is not the server", code="caller-not-server")
            if self._verifier is None:
                startup = Path(collab.workspace.get_startup_kit_dir())
                name, job = str(self.federation["name"]), str(collab.fl_ctx.get_job_id())
                root = Path(collab.workspace.get_root_dir())
                self._revoked = _revoked(startup, root, self.federation)
                self._verifier = Verifier(startup, name, job, collab.site_name, self._revoked)
            self._verifier.check(purpose, content, proof)
        except FedLSVIError as error:
            log.warning(
                "%s from %s was refused: %s", purpose, flare_log.line(caller), error,
                extra={"code": error.code},
            )  # fmt: skip
            raise SiteTrouble(f"{purpose} was refused", code=error.code) from None
        try:
            yield
        except SiteTrouble:  # made of settings alone: it may be told
            raise
        except Exception as error:
            log.error("%s failed", purpose, exc_info=error)
            what = f"{purpose} failed with {type(error).__name__}"
            raise SiteTrouble(f"{what}; the log at that site has the text") from None

    @collab.publish
    def hello(self, content: bytes, proof: bytes) -> dict[str, Any]:
        """How many agents learn here, and with which fedlsvi."""
        from fedlsvi.remote.federation import Federation, package
        from fedlsvi.remote.site import open_books
        from fedlsvi.remote.site_settings import SiteSettings

        with self._for_server("hello", content, proof):
            settings = SiteSettings.read(_local(collab.workspace) / SETTINGS)
            federation = Federation.of(self.federation)
            public, floor = federation.ends_are_public, federation.floor
            if self._activity is None:
                folder = home(collab.workspace, federation.name)
                files.make_private(folder)
                _log_to(folder)
                self._activity = Activity(folder, str(collab.fl_ctx.get_job_id()))
            if missing := settings.require.missing(federation.settings, public, None, floor):
                log.warning("this job is refused: %s", missing)
                raise SiteTrouble(missing, code="protection-missing")
            try:
                refuse_unnamed(federation, settings)
            except InvalidInput as error:  # made of settings alone
                log.warning("this job is refused: %s", error)
                raise SiteTrouble(str(error), code=error.code) from None
            if self._books is None:
                self._books = open_books(settings, home(collab.workspace, federation.name))
                _prune_folders(collab.workspace)
                flare_log.without_calls()
            self._books[1].note("Hello", scalars=1, bytes=8, package=package())
            answer = {"agents": settings.agents, "package": package()}
            if federation.revoked is not None:  # the server must know whose certificate it is
                startup = Path(collab.workspace.get_startup_kit_dir())
                proof = SiteCertificate(startup, federation.name).sign(_present())
                answer["proof"] = proof
            return answer

    @collab.publish
    def join(self, content: bytes, proof: bytes) -> bool:
        """Learn the numbers of this site's agents; take up the journal."""
        from fedlsvi.remote.federation import Federation
        from fedlsvi.remote.site import open_endpoint
        from fedlsvi.remote.site_settings import SiteSettings

        with self._for_server("join", content, proof):
            if self._endpoint is not None:
                return True
            self._first, self._n_agents = first, n_agents = JOIN.unpack(content)
            self._limits = threadpool_limits(limits=1, user_api="blas")
            federation = Federation.of(self.federation)
            self._settings = SiteSettings.read(_local(collab.workspace) / SETTINGS)
            public, floor, require = (
                federation.ends_are_public, federation.floor, self._settings.require
            )  # fmt: skip
            if missing := require.missing(federation.settings, public, None, floor):
                log.warning("this job is refused: %s", missing)
                raise SiteTrouble(missing, code="protection-missing")
            self._book(federation)
            if federation.settings.get("aggregation") == "secure":
                startup = Path(collab.workspace.get_startup_kit_dir())
                peers, fewest = self._settings.peers, self._settings.require.sites
                self._identity = SiteCertificate(
                    startup, federation.name, peers, self._revoked, fewest,
                    partial(self._admit, federation),
                )  # fmt: skip
            endpoint = open_endpoint(
                federation, self._settings, first, n_agents, self._books, self._identity
            )
            if _hides(federation) and self._identity is None:
                # before the endpoint is kept, so that joining again is refused too
                self._take_part(federation, endpoint)
            self._endpoint = endpoint
            self._keep_policy()  # a run that has ended before sends nothing more
            return True

    def _book(self, federation: Any) -> None:
        """Write down what a run may spend of this site's data, before it computes anything; refused
        where the site's own limit would be exceeded."""
        from fedlsvi.remote.account import Account, booking_of
        from fedlsvi.remote.site import SECRETS
        from fedlsvi.remote.site_noise import book

        privacy = federation.budget(self._n_agents)
        folder = home(collab.workspace, federation.name).parent
        run = run_id(federation.parameters(self._n_agents), federation.seed)
        agents, limit = (self._first, self._settings.agents), self._settings.require.limit
        booking = booking_of(
            federation.name, run, agents, privacy, estimate_id(federation, self._n_agents)
        )
        try:
            account = Account(folder, self._settings.durable)
            if privacy is None:
                _refuse_forgotten(federation, account)
                account.book(booking)
            else:
                book(account, booking, files.inside(folder, SECRETS, federation.name), **limit)
        except MessageRefused as error:  # made of settings alone
            log.warning("this job is refused: %s", error)
            raise SiteTrouble(str(error), code=error.code) from None

    def _admit(self, federation: Any, names: Sequence[str]) -> None:
        """Sites of a secure sum."""
        assert self._endpoint is not None
        self._take_part(federation, self._endpoint, names)

    def _take_part(self, federation: Any, endpoint: Endpoint, names: Sequence[str] = ()) -> None:
        """Write down in which sums without noise the data are, with these sites, or where a floor
        alone hides episodes, with none. Noise protects the data whichever they are."""
        from fedlsvi.remote.account import Account
        from fedlsvi.remote.site import sums_of

        if federation.budget(self._n_agents) is not None:
            return
        folder = home(collab.workspace, federation.name).parent
        account = Account(folder, self._settings.durable)
        worlds = endpoint.cohort.experience.worlds
        for now in sums_of(federation, self._settings, self._n_agents, names, worlds):
            account.take_part(now, self._settings.require)

    @collab.publish
    def handle(self, content: bytes, proof: bytes) -> bytes:
        """Answer the frame of a request."""
        with self._for_server("handle", content, proof):
            assert self._endpoint is not None
            if self._activity is not None:
                self._activity.asked(content)
            if self._learned and self._is_of_evaluation(content):
                return self._evaluation().handle(content)
            reply = self._endpoint.handle(content, self._signals)
            self._keep_policy()
            return reply

    @collab.publish
    def signalled_elsewhere(self, content: bytes, proof: bytes) -> None:
        """Another agent signalled at an episode of the round that this site explores."""
        with self._for_server("signalled_elsewhere", content, proof):
            self._signals.heard(*SIGNALLED.unpack(content))

    @collab.publish
    def ended(self, content: bytes, proof: bytes) -> bool:
        """The server has written down the last model: delete what hid this site's uploads."""
        with self._for_server("ended", content, proof):
            assert self._endpoint is not None
            return self._endpoint.end()

    def _is_of_evaluation(self, frame: bytes) -> bool:
        """Whether a frame belongs to the estimate at the end, where one was agreed on."""
        assert self._endpoint is not None
        try:
            return self.federation.get("evaluate") is not None and (
                peek(frame)[2].run != self._endpoint.run
            )
        except MessageRefused:
            return False

    def _evaluation(self) -> PassHandler:
        """What answers in the estimate at the end."""
        from fedlsvi.remote.federation import Federation
        from fedlsvi.remote.site import learned_policy

        if self._passes is None:
            assert self._endpoint is not None
            federation = Federation.of(self.federation)
            policy = learned_policy(self._settings, self._endpoint)
            assert policy is not None
            folder = home(collab.workspace, federation.name)
            self._passes = open_passes(
                federation, self._settings, policy, self._first, self._n_agents, folder,
                self._identity, self._endpoint.asked,
            )  # fmt: skip
        return self._passes

    def _announce(self, frame: bytes) -> None:
        self._books[1].sent(frame)
        collab.server(expect_result=False).signal(frame)

    def _keep_policy(self) -> None:
        """Once all episodes are played, what was learned is here to stay."""
        from fedlsvi.remote.site import keep_policy

        if not self._learned:
            assert self._endpoint is not None
            folder = home(collab.workspace, str(self.federation["name"]))
            try:
                self._learned = keep_policy(self._settings, self._endpoint, folder)
            except StoreError as error:  # the run is not to fail for it: the next job tries again
                log.error("the policy could not be written: %s", error)


def _hides(federation: Any) -> bool:
    """Whether single episodes are to be hidden by those of other sites, or by a floor."""
    return bool(federation.settings.get("aggregation") == "secure" or federation.floor > 1)


def _refuse_forgotten(federation: Any, account: Any) -> None:
    """Sums that hide episodes without noise depend on what else these data were in."""
    from fedlsvi.remote.lost_bookings import refuse_lost

    if _hides(federation):
        refuse_lost(account)


class Coordinator:
    """The server's part of the job."""

    def __init__(self, federation: dict[str, Any]) -> None:
        without_tensors()
        self.federation = federation
        self._transport: Flare | None = None
        self._status: ServerStatus | None = None
        self._engine_ended: Callable[[], str | None] = lambda: None
        self._told = ""

    @collab.main
    def run(self) -> None:
        """Play to the end; the administrator finds the rounds, and the reason of a failure, in the
        job's log."""
        flare_log.without_calls()
        try:
            self._run()
        except Exception as error:
            self._notice_end()
            sentence = self._told or self._sentence(error)
            flare_log.tell_reason(sentence)
            if self._status is not None:
                self._status.end("failed", sentence)
            raise

    def _sentence(self, error: Exception) -> str:
        """Why the run ends; a refusal names an agent, and here the site of that agent too."""
        if isinstance(error, Refusal) and self._transport is not None:
            for (first, agents), site in zip(
                self._transport.cuts, self._transport.proxies, strict=True
            ):
                if first <= error.agent < first + agents:
                    return f"site {site.name}: {error}"
        return str(error)

    def _run(self) -> None:
        """Find the sites, number their agents, play to the end."""
        from fedlsvi.remote.federation import Federation, serve

        federation = Federation.of(self.federation)
        workspace, job = collab.workspace, str(collab.fl_ctx.get_job_id())
        _prune_folders(workspace)
        signer = Signer(Path(workspace.get_startup_kit_dir()), federation.name, job)
        proxies = [proxy for proxy in collab.clients if proxy.name not in federation.removed]
        proxies.sort(key=lambda proxy: proxy.name)
        sites = [SignedSite(proxy, signer, proxy.name) for proxy in proxies]
        if not sites:
            raise TransportError("no site takes part", code="no-sites")
        notes: list[str] = []
        known: SiteVerifier | None = None
        if federation.revoked is not None:
            startup, root = Path(workspace.get_startup_kit_dir()), Path(workspace.get_root_dir())
            revoked = _revoked(startup, root, self.federation)
            known = SiteVerifier.of_server(startup, federation.name, revoked)
        there = {
            site.name: _greet(site, federation.agents_allowed(site.name), notes, known)
            for site in sites
        }
        folder = home(workspace, federation.name)
        counts, every = _with_removed(there, sites, federation, folder)
        p = federation.parameters(sum(counts))
        cuts = [(sum(counts[:c]), m) for c, m in enumerate(counts)]
        run, names = run_id(p, federation.seed), [site.name for site in every]
        opened = federation.open_run(folder, cuts, notes.append)  # refuses before any site is asked
        self._status = status = ServerStatus(folder, federation.name, job, federation.episodes)
        _answer_administrators(status)
        _log_to(folder)
        for site, (first, _) in zip(every, cuts, strict=True):
            if isinstance(site, SignedSite):
                _asked(site, "join", first, p.n_agents)
        guard = Guard(layout(p), federation.bounds(p))
        self._transport = transport = Flare(
            p, every, cuts, run, federation.retry_policy(), guard, ReceivedStreams().exchange_ended
        )
        transport.leaving = {names.index(site): REMOVED for site in federation.removed}
        for note in notes:
            self._transport.reachability.notes.add(note)
        began = {} if opened.found is None else opened.found[0].plain
        spent = partial(p.epsilon_spent, passed=False)
        told = TrafficWatch(Traffic.of(p, 0), True, lambda said: flare_log.tell_notes([said]))
        if not began:
            told.before()
        status.begin(transport, names, began.get("k", 0), began.get("t", 0), spent)
        stops, root = collab.fl_ctx.get_run_abort_signal(), Path(workspace.get_root_dir())
        self._engine_ended = lambda: (
            job_end.failed_for(root, job, names) if stops is not None and stops.triggered else None
        )

        def looked(late: list[Awaited]) -> None:
            status.look(late)
            self._notice_end()

        try:
            with Watch(
                lambda: transport.waiting, names.__getitem__, flare_log.tell_waiting,
                looked=looked,
            ):  # fmt: skip
                values = federation.values(p)
                learned = serve(opened, transport, [flare_log.tell, status, told], values)
            flare_log.tell_notes(self._transport.reachability.missing())
            flare_log.tell_round(learned.rounds, learned.played)
        finally:
            self._transport.close()
        if status.paused:
            status.end("paused")
            flare_log.tell_paused()
            return
        if p.privacy is not None or p.aggregation == "secure":
            _dismiss(sites)
        if federation.evaluate is not None:
            self._estimate(federation, sites, cuts, folder, learned.played)
        status.end("complete")
        flare_log.tell_complete()

    def _notice_end(self) -> None:
        """FLARE ends the job, and this process in a moment: say for whom while there is time."""
        site = self._engine_ended()
        if site is None or self._told or self._status is None:
            return
        if site:
            self._told = f"site {site} was lost: {job_end.WHY}"
            self._status.lost(site, job_end.WHY)
            flare_log.tell_reason(self._told)
        self._status.end("failed", self._told or "the engine or an administrator ended the job")

    def _estimate(
        self, federation: Any, sites: list[SignedSite], cuts: list[tuple[int, int]], folder: Path,
        played: int,
    ) -> None:  # fmt: skip
        """What the learned policy is worth, from records at the sites; once."""
        names = [site.name for site in sites]
        if already(folder, names, played):
            return
        evaluation = evaluation_of(federation, sum(agents for _, agents in cuts))
        first = evaluation.passes[0]
        self._transport = Flare(
            evaluation.parameters(first), sites, cuts, pass_id(evaluation, first),
            replace(federation.retry_policy(), absent="fail", refused="refuse"),
            pass_guard(evaluation, first), ReceivedStreams().exchange_ended,
        )  # fmt: skip
        try:
            estimate(federation, evaluation, FramePasses(evaluation, self._transport), names,
                     folder)  # fmt: skip
        finally:
            self._transport.close()

    @collab.publish
    def signal(self, frame: bytes) -> None:
        """An agent has learned enough to be worth sending (Algorithm 2, line 18)."""
        if self._transport is not None:
            self._transport.signalled(frame, collab.caller)


REMOVED = "the organiser removed it"


def _with_removed(
    there: dict[str, int], sites: list[SignedSite], federation: Any, folder: Path
) -> tuple[list[int], list[SignedSite | RemovedSite]]:
    """How many agents each site has, and the sites, in the order of agents. Those that were removed
    keep their place: the checkpoint knows how many agents they have."""
    if not federation.removed:
        return list(there.values()), list(sites)
    every: list[SignedSite | RemovedSite] = [*sites, *map(RemovedSite, federation.removed)]
    every.sort(key=lambda site: site.name)
    found = checkpoint.newest(folder, log.warning) if folder.is_dir() else None
    cuts = [] if found is None else found[0].plain["transport"]["cuts"]
    if len(cuts) != len(every):
        raise TransportError(
            f"the run has {plural(len(cuts), 'site')} in its last checkpoint, but "
            f"{plural(len(every), 'site')} with those that were removed: a site is removed from a "
            "run that has done a round",
            code="other-sites",
        )
    federation.check_removal(sum(agents for _, agents in cuts))
    counts = [
        there.get(site.name, int(agents)) for site, (_, agents) in zip(every, cuts, strict=True)
    ]
    return counts, every


def without_tensors() -> None:
    """Keep FLARE from importing PyTorch, where it is installed, when a job starts.

    FLARE would register a decoder for tensors. What is sent here is bytes, so a job starts seconds
    sooner without it, and has one decoder less for what others send.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault("nvflare.app_opt.pt", None)  # to import it fails as if it were not there


def _log_to(folder: Path) -> None:
    """What fedlsvi logs in this job goes into the party's own folder too, as JSON lines."""
    with suppress(OSError):
        json_log.write_to(folder / LOG)


def _answer_administrators(status: ServerStatus) -> None:
    """Whoever may submit a job may also ask how it is, and for a pause."""
    engine = collab.fl_ctx.get_engine()
    engine.register_app_command(flare_log.ASK_STATUS, lambda topic, data, fl_ctx: status.table())
    engine.register_app_command(
        flare_log.ASK_PAUSE, lambda topic, data, fl_ctx: {"pausing": status.pause()}
    )


def home(workspace: Any, name: str) -> Path:
    """Where a party keeps what belongs to a federation: beside FLARE's own folders, so that it
    outlives a job."""
    from fedlsvi.remote.site import HOME

    return Path(workspace.get_root_dir()) / HOME / name


def _prune_folders(workspace: Any) -> None:
    """A job begins: FLARE's folders of earlier ones are kept for the last few."""
    with suppress(OSError):  # no reason to end a job
        root = Path(workspace.get_root_dir())
        for folder in job_folders.prune(root, str(collab.fl_ctx.get_job_id())):
            log.info("the folder of an earlier job was removed: %s", folder)


def _local(workspace: Any) -> Path:
    return Path(workspace.get_site_config_dir())


def _asked(site: Any, what: str, *given: Any) -> Any:
    """Before the first round: a site that cannot take part is named."""
    try:
        return getattr(site(timeout=600.0), what)(*given)
    except Exception as error:  # the engine's own, around what the site said
        said = str(error).rpartition(f"{SiteTrouble.__name__}: ")[2]
        raise TransportError(
            f"site {site.name} cannot take part: {flare_log.line(said)}", code="site-refused"
        ) from None


def _dismiss(sites: list[SignedSite]) -> None:
    """The run has ended. A site that does not hear it keeps its secrets until the job is started
    again, and the run has its model all the same."""
    for site in sites:
        try:
            gone = site(timeout=60.0).ended()
        except Exception:  # whatever the engine raises for a site that is gone
            gone = False
        if gone is not True:
            log.warning("site %s keeps the secrets of this run: it did not hear the end", site.name)


def _revoked(startup: Path, root: Path, federation: dict[str, Any]) -> Revoked:
    """What this party refuses: the latest list that it has seen, this job's included."""
    from fedlsvi.remote.site import HOME

    return Revoked.of(startup, root / HOME, federation.get("revoked"))


def _present() -> bytes:
    """What a site signs for the server: that it takes part in this job."""
    return b"takes part\0" + str(collab.fl_ctx.get_job_id()).encode()


def _greet(site: SignedSite, most: int, notes: list[str], known: SiteVerifier | None = None) -> int:
    """How many agents a site has, which must be as many as it may have; another version of
    fedlsvi there is noted. Where certificates were revoked, the site shows its own."""
    from fedlsvi.remote.federation import package

    answer = _asked(site, "hello")
    table = answer if isinstance(answer, dict) else {"agents": answer}
    said: Any = table.get("agents")
    if known is not None:
        _refuse_revoked(site.name, table.get("proof"), known)
    theirs = flare_log.line(table.get("package"))[:80]
    if theirs != package():
        notes.append(
            f"site {site.name} has fedlsvi {theirs}, the server {package()}: install the same "
            "everywhere"
        )
    if not is_integer(said) or not 1 <= said <= most:
        raise TransportError(
            f"site {site.name} reports {flare_log.line(shown(said))} agents, but 1 to {most} are "
            "allowed: if that is intended, change max_agents in federation.toml",
            code="bad-agents",
        )
    return int(said)


def _refuse_revoked(name: str, proof: Any, known: SiteVerifier) -> None:
    """Refuse a site whose certificate counts no more, or that shows somebody else's."""
    try:
        shown_name, _ = known.verify(0, _present(), proof if isinstance(proof, bytes) else b"")
    except MessageRefused as error:
        raise TransportError(
            f"site {name} cannot take part: {error}", code="site-revoked"
        ) from None
    if shown_name != name:
        raise TransportError(
            f"site {name} cannot take part: it showed the certificate of {shown_name}",
            code="site-revoked",
        )


class SiteTrouble(FedLSVIError):
    """Something went wrong at a site; what it was stands in the site's log."""
