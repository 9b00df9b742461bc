"""The examples in the help of each command."""

from typing import Final

import click

__all__ = ["EXAMPLES", "examples_of", "illustrate"]

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "toril": ("toril run jobs:app", "toril queues -A jobs:app", 'toril add email welcome \'{"to": "ada"}\''),
    "toril demo": ("toril demo",),
    "toril run": (
        "toril run jobs:app",
        "toril run jobs:app --processes 4 -q email:20 -q sync:5",
        "toril run jobs:app --burst --log-level warning",
    ),
    "toril dashboard": ("toril dashboard jobs:app", "toril dashboard --url redis://localhost:6379/0 --http :8080"),
    "toril reaper": ("toril reaper", "toril reaper jobs:app -q email --stall-interval 500ms"),
    "toril ping": ("toril ping", "toril ping --live --http 127.0.0.1:9000"),
    "toril add": (
        'toril add email welcome \'{"to": "ada"}\' --delay 10m',
        "toril add import load @rows.json --job-id monday --attempts 3",
    ),
    "toril queues": ("toril queues", "toril queues --bytes", "toril queues --json"),
    "toril metrics": ("toril metrics email", "toril metrics email --range 1d --json"),
    "toril workers": ("toril workers", "toril workers stop worker-host-4711-8a40fe"),
    "toril workers jobs": ("toril workers jobs worker-host-4711-8a40fe",),
    "toril workers quiet": ("toril workers quiet worker-host-4711-8a40fe",),
    "toril workers stop": ("toril workers stop worker-host-4711-8a40fe",),
    "toril top": ("toril top", "toril top --once"),
    "toril jobs": (
        "toril jobs email --state failed",
        "toril jobs email --runs --name welcome --limit 200",
        "toril jobs email --key user.id=7 --json",
    ),
    "toril job": ("toril job show email 17", "toril job why 17"),
    "toril job show": ("toril job show email 17", "toril job show 17 --json"),
    "toril job why": ("toril job why email 17",),
    "toril job stack": ("toril job stack email 17",),
    "toril job retry": ("toril job retry email 17",),
    "toril job cancel": ("toril job cancel email 17 --reason 'sent by hand'",),
    "toril job promote": ("toril job promote email 17",),
    "toril job steps": ("toril job steps people 17", "toril job steps 17 --json"),
    "toril job signal": (
        """toril job signal people 17 approval --data '{"ok": true}'""",
        "toril job signal people 17 approval --if-waiting --id click-17",
    ),
    "toril job rewind": ("toril job rewind people 17 --to draft", "toril job rewind people 17 --yes"),
    "toril job remove": ("toril job remove email 17 --yes",),
    "toril flow": ("toril flow report 3",),
    "toril signal": (
        """toril signal payments paid --key invoice:7 --data '{"amount": 5}'""",
        "toril signal payments paid --key invoice:7 --id evt-81 --ttl 2h",
    ),
    "toril waits": ("toril waits", "toril waits people --signal approval --json"),
    "toril events": ("toril events -f", "toril events email sync -n 100 --json"),
    "toril schedules": ("toril schedules list", "toril schedules run nightly"),
    "toril schedules list": ("toril schedules list", "toril schedules list report"),
    "toril schedules show": ("toril schedules show report nightly",),
    "toril schedules run": ("toril schedules run report nightly",),
    "toril schedules pause": ("toril schedules pause report nightly",),
    "toril schedules resume": ("toril schedules resume report nightly",),
    "toril schedules remove": ("toril schedules remove report nightly --yes",),
    "toril scan": ("toril scan jobs:app stuck_imports --dry-run",),
    "toril dlq": ("toril dlq list --within 1d", "toril dlq replay --queue email --dry-run"),
    "toril dlq list": ("toril dlq list --queue email --within 2h", "toril dlq list --type TimeoutError --json"),
    "toril dlq show": ("toril dlq show email/17",),
    "toril dlq replay": (
        "toril dlq replay email/17 email/18",
        "toril dlq replay --queue email --error greylisted --attempts 5 --backoff 30s",
    ),
    "toril dlq discard": ("toril dlq discard --queue email --older-than 30d --yes",),
    "toril dlq keep": ("toril dlq keep", "toril dlq keep --count 10000 --age 30d"),
    "toril outbox": ("toril outbox list sqlite:///app.db", "toril outbox relay postgresql://localhost/app"),
    "toril outbox create": ("toril outbox create postgresql://localhost/app",),
    "toril outbox list": ("toril outbox list sqlite:///app.db --refused",),
    "toril outbox retry": ("toril outbox retry sqlite:///app.db 4 7",),
    "toril outbox relay": ("toril outbox relay postgresql://localhost/app --url redis://localhost:6379/0",),
    "toril breakers": ("toril breakers", "toril breakers trip mailer --for 10m"),
    "toril breakers trip": ("toril breakers trip mailer --for 10m",),
    "toril breakers reset": ("toril breakers reset mailer",),
    "toril doctor": ("toril doctor", "toril doctor -q email --repair --dry-run"),
    "toril move": ("toril move sqlite:///toril.db redis://localhost:6379/0 --dry-run",),
    "toril torture": ("toril torture --url redis --minutes 2", "toril torture --seed 42 --dry-run"),
    "toril bench": ("toril bench", "toril bench --url redis://localhost:6379/0"),
    "toril pause": ("toril pause email",),
    "toril resume": ("toril resume email",),
    "toril groups": ("toril groups email", "toril groups pause email tenant-7"),
    "toril groups list": ("toril groups list email --all",),
    "toril groups pause": ("toril groups pause email tenant-7",),
    "toril groups resume": ("toril groups resume email tenant-7",),
    "toril groups set": (
        "toril groups set email tenant-7 --concurrency 2 --rate 10/1m",
        "toril groups set email --max-waiting 1000",
    ),
    "toril limit": (
        "toril limit email",
        "toril limit email --rate 100/1s --concurrency 20",
        "toril limit email --rate none",
    ),
    "toril cancel": ("toril cancel email --name send_digest --key org=nordwind", "toril cancel email --dry-run"),
    "toril drain": ("toril drain email --delayed",),
    "toril clean": ("toril clean email --state failed --older-than 7d",),
    "toril obliterate": ("toril obliterate email --yes",),
}


def examples_of(path: str) -> str:
    """The end of a command's help."""
    examples = EXAMPLES[path]
    return "\n".join(["\b", "Examples:" if len(examples) > 1 else "Example:", *(f"  {line}" for line in examples)])


def illustrate(command: click.Command, path: str) -> None:
    """Have the help of a command, and of those below it, end with its examples."""
    if path in EXAMPLES:
        command.epilog = examples_of(path)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            illustrate(each, f"{path} {name}")
