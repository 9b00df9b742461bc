"""An authority of our own that signs servers' certificates, made anew for each session by `openssl`."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["Authority", "authority"]

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates; `certificate` is its own."""

    def __init__(self, name: str = "Toril's tests") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toril-ca-"))
        atexit.register(shutil.rmtree, self.folder)
        self.certificate = self.folder / "ca.pem"
        self._key = self.folder / "ca.key"
        self._run("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key,
                  "-out", self.certificate)  # fmt: skip

    def options(self, name: str = "IP:127.0.0.1", *, days: int = 2) -> tuple[str, ...]:
        """What a server is told: its key, and a certificate for this name. It must still be given a TLS port."""
        stem = self.folder / f"{name.replace(':', '-')}-{days}"
        key, request, signed, more = (stem.with_suffix(f".{kind}") for kind in ("key", "csr", "pem", "ext"))
        more.write_text(f"subjectAltName={name}\n")
        self._run("req", "-new", *_KEY, "-subj", "/CN=redis", "-keyout", key, "-out", request)
        self._run("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                  "-days", str(days), "-extfile", more, "-out", signed)  # fmt: skip
        return (
            "--tls-cert-file", str(signed), "--tls-key-file", str(key), "--tls-ca-cert-file", str(self.certificate),
            "--tls-auth-clients", "no",
        )  # fmt: skip

    @staticmethod
    def _run(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@cache
def authority() -> Authority:
    """The one that clients in tests trust."""
    return Authority()
