"""Everything that users read is in one file, so that whoever reviews a change sees the words that it changes."""

from textwrap import dedent

import pytest
from tools import words


def test_the_file_has_the_strings_of_the_source() -> None:
    assert words.FILE.read_text("utf-8") == words.text(), "run  make words, and read what has changed"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("Errors", "unknown store URL {…}; expected one of {…}"),
        ("Log lines", "became recovery leader"),
        ("Help", "Trust X-Forwarded-* headers from this proxy."),
        ("Columns", "prioritized"),
        ("Commands", "This removes schedule {…} of {…}."),
        ("Explanations, findings and alerts", "Queue {…} is paused."),
        ("The HTTP API and the dashboard", "missing or invalid credentials"),
        ("The dashboard's pages", "Max concurrency"),
        ("The dashboard's script", "Cannot reach the server. This page shows data from {…} UTC."),
        ("The supervisor", "its process hung: the event loop was blocked for {…} s"),
    ],
)
def test_every_kind_of_string_is_collected(section: str, text: str) -> None:
    assert any(text in said for said in words.collected()[section])


def test_python_strings_are_told_apart_by_what_they_are_for() -> None:
    source = dedent('''
        """Not this."""

        NAMES = frozenset({"one", "two"})
        LINES = {"booted": (logging.DEBUG, "booted")}
        READ = "SELECT name FROM jobs"

        @main.command()
        @click.option("--rate", help="Jobs per second.")
        def limit(name: "a type") -> None:
            """Limit a queue.

            For good.
            \\f
            Not this either.
            """
            log.warning("limited %s", name)
            click.echo(f"Limited {name}" + (f" to {rate} jobs" if rate else ""))
            raise UsageError(f"no queue {name!r}; did you mean {'this' if one else 'that'}?", param_hint="--rate now")
        ''')

    assert list(words.in_python(source)) == [
        ("log", "booted"),
        ("help", "Jobs per second."),
        ("help", "Limit a queue. For good."),
        ("log", "limited %s"),
        ("", "Limited {…}{…}"),
        ("", " to {…} jobs"),
        ("errors", "no queue {…}; did you mean {this | that}?"),
    ]


def test_a_template_is_read_as_a_person_sees_it() -> None:
    source = """
        {# not this #}
        <button class="btn big" aria-label="Close it">{{ icon }} <b>Close</b>{{ " " }}now</button>
        <p>{% if paused %}Paused{% else %}Running{% endif %} since {{ ago(at) }}</p>
        {{ plural(many, "failed job") }}
        """

    assert sorted(words.in_template(source)) == [
        "Close it", "Paused | Running since {…}", "failed job", "{…} Close now",
    ]  # fmt: skip


def test_a_script_is_read_without_its_selectors_and_classes() -> None:
    source = """
        // It's not this.
        const b = $('.btn .primary'), c = h('p', { class: 'Big one' }, 'Retry ' + 'the job');
        if (/it's/.test(x)) toast(`Removed ${plural(n, noun)} of ${all ? `All ${n}` : 'Some jobs'}.`);
        """

    assert sorted(words.in_script(source)) == ["All {…}", "Removed {…} of {…}.", "Retry the job", "Some jobs"]
