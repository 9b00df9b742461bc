"""pydantic-ai: the model requests and tool calls of an agent as durable steps of the job that runs it.

`Agent(…, capabilities=[DurableSteps()])`. Outside of a handler, such an agent runs like any other.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Any

from pydantic_ai import ModelRetry, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from toril.context import JobContext, current_context, current_step
from toril.model.durations import Duration
from toril.policy.retry import Retry
from toril.signals import SignalKind

__all__ = ["APPROVAL", "DurableSteps", "ToolApproval"]


@dataclass(frozen=True, slots=True)
class ToolApproval:
    """A person's answer to a tool call that requires approval. `message` tells the model why it was denied."""

    ok: bool
    message: str = "The tool call was denied."


APPROVAL = SignalKind("tool-approval", ToolApproval)


class DurableSteps(AbstractCapability[Any]):
    """Records each response of the model and each result of a tool with the job, so that no run of the job repeats
    them.

    For a tool that requires approval, the job waits for the signal `APPROVAL`, and takes no slot meanwhile. Its key is
    made of the ids of the job and the tool call; the job's log tells it. `timeout` limits each model request. With
    `retry`, one that fails is tried again, and the job rests between tries.
    """

    def __init__(self, *, retry: Retry | None = None, timeout: Duration | None = None) -> None:
        self._retry = retry
        self._timeout = timeout
        self._agent: Any = None
        self._begun: dict[str, Coroutine[Any, Any, str]] = {}  # by run id: the step that says which run it is
        # Of one run of an agent, which makes its requests in several tasks: steps cannot be numbered by their calls.
        self._run = ""
        self._requests = count(1)
        self._questions = count(1)

    def for_agent(self, agent: Any) -> "DurableSteps":
        """The capability for one agent."""
        made = DurableSteps(retry=self._retry, timeout=self._timeout)
        made._agent = agent
        return made

    def get_default_run_id(self) -> str | None:
        """Number the run among those of this agent in the job. Only this hook is called by the caller's own task, in
        which the order of the runs is certain."""
        job = _job()
        if job is None:
            return None
        run_id = f"{job.queue_name}:{job.job_id}:{job.fence}:{next(self._requests)}"
        self._begun[run_id] = job.step(f"{_name(self._agent)}.run", _own_key)
        return run_id

    async def for_run(self, ctx: RunContext[Any]) -> "DurableSteps":
        """The capability for one run of the agent."""
        made = DurableSteps(retry=self._retry, timeout=self._timeout)
        begun = self._begun.pop(ctx.run_id or "", None)
        if begun is not None:
            _, _, number = (await begun).partition("#")
            made._run = number and f"{number}."
        elif _job() is not None:
            made._run = f"{ctx.run_id}."
        return made

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: Callable[[ModelRequestContext], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """Record the response of the model."""
        job = _job()
        if job is None:
            return await handler(request_context)

        async def request() -> ModelResponse:
            return await handler(request_context)

        key = f"{self._run}{next(self._requests)}"
        options: Any = {"retry": self._retry, "timeout": self._timeout, "result": ModelResponse}
        found: ModelResponse = await job.step(f"{_name(ctx.agent)}.model", request, key=key, **options)
        return found

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        handler: Callable[[Any], Awaitable[Any]],
    ) -> Any:
        """Record what the tool returns, or what it tells the model by `ModelRetry` or `ToolFailed`."""
        job = _job()
        if job is None:
            return await handler(args)

        async def run() -> dict[str, Any]:
            try:
                return {"value": await handler(args)}
            except ToolRetryError as error:
                return {"retry": error.tool_retry.content}
            except ToolFailedError as error:
                return {"failed": error.tool_failed.content}

        found = await job.step(f"{_name(ctx.agent)}.tool.{tool_def.name}", run, key=f"{self._run}{call.tool_call_id}")
        if "retry" in found:
            raise ModelRetry(found["retry"])
        if "failed" in found:
            raise ToolFailed(found["failed"])
        return found["value"]

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Wait until people have approved or denied all tool calls of one response of the model."""
        job = _job()
        if job is None or not requests.approvals:
            return None
        keys = [f"{job.job_id}:{self._run}{call.tool_call_id}" for call in requests.approvals]
        for call, key in zip(requests.approvals, keys, strict=True):
            await job.log(f"{call.tool_name}({call.args_as_json_str()}) needs an approval, by the key {key}")
        name = f"{_name(ctx.agent)}.approvals.{self._run}{next(self._questions)}"
        answers = await job.gather(*(_answer(job, key) for key in keys), name=name)
        calls = [call.tool_call_id for call in requests.approvals]
        return DeferredToolResults(approvals=dict(zip(calls, answers, strict=True)))


async def _answer(job: JobContext[Any], key: str) -> ToolApproved | ToolDenied:
    answer = await job.wait_for(APPROVAL, key=key)
    assert answer is not None  # noqa: S101 - a wait without a timeout
    return ToolApproved() if answer.ok else ToolDenied(answer.message)


async def _own_key() -> str:
    """Run as a step: the key under which it is recorded."""
    info = current_step()
    return "" if info is None else info.key


def _job() -> JobContext[Any] | None:
    """The job that runs the agent; within a step, the agent is only part of that."""
    return None if current_step() is not None else current_context()


def _name(agent: Any) -> str:
    return str(getattr(agent, "name", None) or "agent")
