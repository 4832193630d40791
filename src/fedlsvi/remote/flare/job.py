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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from nvflare.collab import collab
from threadpoolctl import threadpool_limits

from fedlsvi.checks import is_integer, shown
from fedlsvi.errors import FedLSVIError, InvalidInput, MessageRefused, StoreError, TransportError
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.closing_estimate import (
    already,
    estimate,
    evaluation_of,
    open_passes,
    refuse_unnamed,
)
from fedlsvi.remote.codec import peek, run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.evaluation import FramePasses, PassHandler, pass_guard, pass_id
from fedlsvi.remote.flare import log as flare_log
from fedlsvi.remote.flare.signing import Signer, Verifier
from fedlsvi.remote.flare.site_certificate import SiteCertificate
from fedlsvi.remote.flare.transport import JOIN, SIGNALLED, Flare, SignedSite
from fedlsvi.remote.guard import Guard, Refusal

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
    """A site's agents. Only the server may call: each of the four methods takes what it asks for
    and its signature. None returns anything but frames, the number of agents and a version."""

    def __init__(self, federation: dict[str, Any]) -> None:
        without_tensors()
        self.federation = federation
        self._endpoint: Endpoint | None = None
        self._books: Any = None
        self._settings: Any = None
        self._first, self._n_agents = 0, 0
        self._passes: PassHandler | None = None
        self._learned = False
        self._verifier: Verifier | None = None
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
                self._verifier = Verifier(startup, name, job, collab.site_name)
            self._verifier.check(purpose, content, proof)
        except FedLSVIError as error:
            log.warning("%s from %s was refused: %s", purpose, flare_log.line(caller), error)
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
            if missing := settings.require.missing(federation.settings):
                log.warning("this job is refused: %s", missing)
                raise SiteTrouble(missing, code="protection-missing")
            try:
                refuse_unnamed(federation, settings)
            except InvalidInput as error:  # made of settings alone
                log.warning("this job is refused: %s", error)
                raise SiteTrouble(str(error), code=error.code) from None
            if self._books is None:
                self._books = open_books(settings, home(collab.workspace, federation.name))
            self._books[1].note("Hello", scalars=1, bytes=8, package=package())
            return {"agents": settings.agents, "package": package()}

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
            if missing := self._settings.require.missing(federation.settings):
                log.warning("this job is refused: %s", missing)
                raise SiteTrouble(missing, code="protection-missing")
            identity = None
            if federation.settings.get("aggregation") == "secure":
                startup = Path(collab.workspace.get_startup_kit_dir())
                identity = SiteCertificate(startup, federation.name)
            self._endpoint = open_endpoint(
                federation, self._settings, first, n_agents, self._books, identity
            )
            self._keep_policy()  # a run that has ended before sends nothing more
            return True

    @collab.publish
    def handle(self, content: bytes, proof: bytes) -> bytes:
        """Answer the frame of a request."""
        with self._for_server("handle", content, proof):
            assert self._endpoint is not None
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
                federation, self._settings, policy, self._first, self._n_agents, folder
            )
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


class Coordinator:
    """The server's part of the job."""

    def __init__(self, federation: dict[str, Any]) -> None:
        without_tensors()
        self.federation = federation
        self._transport: Flare | None = None

    @collab.main
    def run(self) -> None:
        """Play to the end; the administrator finds the rounds, and the reason of a failure, in the
        job's log."""
        flare_log.without_calls()
        try:
            self._run()
        except Exception as error:
            flare_log.tell_reason(self._sentence(error))
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
        signer = Signer(Path(workspace.get_startup_kit_dir()), federation.name, job)
        proxies = sorted(collab.clients, key=lambda proxy: proxy.name)
        sites = [SignedSite(proxy, signer, proxy.name) for proxy in proxies]
        if not sites:
            raise TransportError("no site takes part", code="no-sites")
        notes: list[str] = []
        counts = [_greet(site, federation.agents_allowed(site.name), notes) for site in sites]
        p = federation.parameters(sum(counts))
        cuts = [(sum(counts[:c]), m) for c, m in enumerate(counts)]
        run, folder = run_id(p, federation.seed), home(workspace, federation.name)
        opened = federation.open_run(folder, cuts, notes.append)  # refuses before any site is asked
        for site, (first, _) in zip(sites, cuts, strict=True):
            _asked(site, "join", first, p.n_agents)
        guard = Guard(layout(p), federation.facts(p))
        self._transport = Flare(p, sites, cuts, run, federation.retry_policy(), guard)
        for note in notes:
            self._transport.membership.notes.add(note)
        try:
            learned = serve(opened, self._transport, [flare_log.tell], federation.values(p))
            flare_log.tell_notes(self._transport.membership.missing())
            flare_log.tell_round(learned.rounds, learned.played)
        finally:
            self._transport.close()
        if federation.evaluate is not None:
            self._estimate(federation, sites, cuts, folder, learned.played)
        flare_log.tell_complete()

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
            pass_guard(evaluation, first),
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


def without_tensors() -> None:
    """Keep FLARE from importing PyTorch, where it is installed, when a job starts.

    FLARE would register a decoder for tensors. What is sent here is bytes, so a job starts seconds
    sooner without it, and has one decoder less for what others send.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault("nvflare.app_opt.pt", None)  # to import it fails as if it were not there


def home(workspace: Any, name: str) -> Path:
    """Where a party keeps what belongs to a federation: beside FLARE's own folders, so that it
    outlives a job."""
    from fedlsvi.remote.site import HOME

    return Path(workspace.get_root_dir()) / HOME / name


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


def _greet(site: SignedSite, most: int, notes: list[str]) -> int:
    """How many agents a site has, which must be as many as it may have; another version of
    fedlsvi there is noted."""
    from fedlsvi.remote.federation import package

    answer = _asked(site, "hello")
    table = answer if isinstance(answer, dict) else {"agents": answer}
    said: Any = table.get("agents")
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


class SiteTrouble(FedLSVIError):
    """Something went wrong at a site; what it was stands in the site's log."""
