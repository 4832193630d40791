"""Somebody who knocks at the server's port without a key of the project."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from patience import PATIENCE

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def unregistered(folder: Path, name: str) -> Path:
    """A key of one's own, with a certificate for this name that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(own, own, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "client.crt").write_bytes(signed.public_bytes(Encoding.PEM))
    kinds = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    (folder / "client.key").write_bytes(key.private_bytes(*kinds))
    return folder


def speak(
    kit: Path | None, address: tuple[str, int], words: bytes = REQUEST, seconds: float = PATIENCE
) -> bytes:
    """What comes back to the holder of a key; nothing where TLS is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kit is not None:
        context.load_cert_chain(kit / "client.crt", kit / "client.key")
    with socket.create_connection(address, PATIENCE) as raw:
        try:
            with context.wrap_socket(raw) as secure:
                secure.settimeout(seconds)
                secure.sendall(words)
                return receive(secure)
        except (ssl.SSLError, ConnectionError):
            return b""


def welcome(kit: Path, address: tuple[str, int]) -> bool:
    """Whether the line stays open, even if nobody has anything to say."""
    try:
        return speak(kit, address, b"", 2.0) != b""
    except TimeoutError:
        return True


def receive(connection: socket.socket) -> bytes:
    """What is said next; nothing where the line is cut."""
    try:
        return connection.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""
