"""Report jobs that fail for good to Sentry: once each, with tags and the error, and without the payload.

This example prints what would be sent. To send it, leave out `transport` and use your own `dsn`.
"""

import asyncio

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from toril import App, Fixed, JobContext, JobFailed, Retry
from toril.integrations.sentry import instrument


class Printed(Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            raised = event["exception"]["values"][-1]
            print(f"{raised['type']}: {raised['value']}", {**event["tags"]})


app = App("memory://")
instrument(app)


async def charge(ctx: JobContext[str]) -> None:
    raise ConnectionError(f"no answer in attempt {ctx.attempt}")


payments = app.queue("payments", [charge], retry=Retry(3, Fixed(0.05)))


async def main() -> None:
    sentry_sdk.init(dsn="https://key@localhost/1", transport=Printed(), auto_enabling_integrations=False)
    async with app:
        worker = asyncio.create_task(app.run())
        try:
            await payments.add_and_wait(charge, "4242 4242 4242 4242")
        except JobFailed as failed:
            print(failed.reason)
        app.stop()
        await worker


if __name__ == "__main__":
    asyncio.run(main())
