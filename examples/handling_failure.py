"""What a handler can say about a failure, and what happens to its job."""

import asyncio

from toril import App, Exponential, JobContext, JobFailed, PermanentError, Retry, Snooze, TransientError

app = App("memory://")

calls = 0


async def charge(ctx: JobContext[str]) -> str:
    global calls  # noqa: PLW0603 - the flaky service of this example
    calls += 1
    if ctx.data == "no such card":
        raise PermanentError("the card does not exist")  # trying again will not help
    if calls == 2:
        raise TransientError("busy", retry_after=0.1)  # try again when the service says so, not earlier
    if calls == 3:
        raise Snooze(0.1)  # run later; this spends no attempt
    if calls < 5:
        raise ConnectionError("no answer")  # any other error: try again after a backoff
    return f"charged in attempt {ctx.attempt}"


payments = app.queue("payments", [charge], retry=Retry(attempts=5, backoff=Exponential(0.05, jitter="full")))


async def main() -> None:
    async with app:
        worker = asyncio.create_task(app.run())
        try:
            await payments.add_and_wait(charge, "no such card")
        except JobFailed as error:
            print(error.reason)
        print(await payments.add_and_wait(charge, "4242"))
        app.stop()
        await worker


if __name__ == "__main__":
    asyncio.run(main())
