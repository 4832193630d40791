"""The live page over HTTP: on loopback, or elsewhere with a token.

It answers GET and HEAD for five paths, reads nothing from a request but its path, its token and the
name that it was sent to, and names no address outside this machine.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedlsvi.errors import InvalidInput
from fedlsvi.live import page
from fedlsvi.live.watcher import Watcher

READERS = 32
"""Pages that may be open at a time."""

SECONDS = 30.0
"""How long a caller may take to ask, and to take what it is sent."""

COOKIE = "fedlsvi"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class LivePage:
    """Serves the page of a watcher until it is closed; a context.

    Args:
        watcher: Knows what is shown.
        title: Of the page.
        address: Where it listens.
        port: 0 is any that is free.
        token: Who comes without it gets nothing; needed elsewhere than on loopback.
        names: Further names under which the page is opened.

    Attributes:
        url: What to open.

    Raises:
        InvalidInput: It cannot listen there, or there is no token elsewhere than on loopback.
    """

    def __init__(
        self, watcher: Watcher, title: str, address: str = "127.0.0.1", port: int = 0,
        token: str = "", names: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        if not token and not is_loopback(address):
            raise InvalidInput(
                f"{address} can be reached by others: give a token", code="needs-token"
            )
        self.watcher, self.title, self.token = watcher, title, token
        self.readers = BoundedSemaphore(READERS)
        try:
            self._server = _Server((address, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"the page cannot be served at {address}:{port} ({error}): choose another port",
                code="bad-port",
            ) from None
        self._server.live, self.port = self, self._server.server_port
        local = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(address) else set()
        self.hosts = {
            text.lower() for name in {*local, _bracketed(address), *names}
            for text in (name, f"{name}:{self.port}")
        }  # fmt: skip
        shown = (
            _bracketed(address) if address not in ("0.0.0.0", "::") else (*names, "localhost")[0]
        )
        self.url = f"http://{shown}:{self.port}/" + (f"?token={token}" if token else "")
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> LivePage:
        self.watcher.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.watcher.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    with suppress(ValueError):
        return ip_address(address).is_loopback
    return address == "localhost"


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    live: LivePage

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who went away in the middle is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fedlsvi", ""
    timeout = SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a token may be in the address."""

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer one of the paths."""
        live, asked = self.server.live, urlsplit(self.path)
        if self.headers.get("Host", "").lower() not in live.hosts:
            self._answer(421, "text/plain", "this page is not served under that name")
            return
        if live.token:
            given = parse_qs(asked.query).get("token", [""])[0]
            if asked.path == "/" and _same(given, live.token):
                cookie = f"{COOKIE}={live.token}; HttpOnly; SameSite=Strict; Path=/"
                self._answer(303, "text/plain", "", {"Location": "/", "Set-Cookie": cookie})
                return
            if not _same(self._cookie(), live.token):
                self._answer(403, "text/plain", "open the address with the token that was printed")
                return
        if asked.path == "/":
            self._answer(200, "text/html", page.shell(live.title))
        elif asked.path == "/style.css":
            self._answer(200, "text/css", page.style())
        elif asked.path == "/live.js":
            self._answer(200, "text/javascript", page.script())
        elif asked.path == "/events" and self.command == "GET":
            self._events()
        else:
            self._answer(404, "text/plain", "there is nothing here")

    def _cookie(self) -> str:
        with suppress(CookieError, KeyError):
            return SimpleCookie(self.headers.get("Cookie", ""))[COOKIE].value
        return ""

    def _answer(
        self, status: int, kind: str, text: str, more: dict[str, str] | None = None
    ) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in {**HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _events(self) -> None:
        """Whatever changes, until the reader goes."""
        live = self.server.live
        if not live.readers.acquire(blocking=False):
            self._answer(503, "text/plain", "too many pages are open")
            return
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Connection", "close")
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            for change in live.watcher.changes():
                self.wfile.write(f"data: {change}\n\n".encode() if change else b": still here\n\n")
                self.wfile.flush()
        except OSError:
            return  # the reader has gone
        finally:
            live.readers.release()


def _same(given: str, token: str) -> bool:
    """Compared in constant time."""
    return compare_digest(given.encode(), token.encode())
