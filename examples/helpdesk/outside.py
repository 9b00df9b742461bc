"""External services, as handlers see them: one client for mail providers, token endpoints, webhooks and models."""

from types import TracebackType
from typing import Any

import httpx

from toril import raise_for_status

__all__ = ["Outside"]


class Outside:
    """Calls external services. A failed response becomes an error that says whether another attempt may help: 429 waits
    as long as `Retry-After` asks, 5xx and lost connections are retried, other responses are final."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=10, trust_env=False)

    async def __aenter__(self) -> "Outside":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str, **query: str) -> Any:
        return _answer(await self._client.get(path, params=query))

    async def post(self, path: str, key: str, body: Any = None) -> Any:
        """Have something done once: the other side recognizes by the key what it has already done. A job's id is a good
        key, because it is the same on every attempt."""
        return _answer(await self._client.post(path, json=body, headers={"Idempotency-Key": key}))


def _answer(response: httpx.Response) -> Any:
    raise_for_status(response)
    return response.json()
