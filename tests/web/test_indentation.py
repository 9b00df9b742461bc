"""Templates are indented for readers; pages are sent without it."""

import traceback

import pytest
from jinja2 import Environment, UndefinedError
from jinja2.runtime import StrictUndefined

from toril.web.indentation import Unindented

ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined, extensions=[Unindented])


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("<ul>\n  <li>\n    one\n  </li>\n</ul>\n", "<ul><li>one</li></ul>"),
        ("<p>\n  two words\n  and more\n</p>", "<p>two words and more</p>"),
        ("<b>one</b> <i>two</i>", "<b>one</b> <i>two</i>"),
        ('<b>one</b>{{ " " }}\n<i>two</i>', "<b>one</b> <i>two</i>"),
        ("{% if true %}\n  <b>\n    {{ 1 }}\n  </b>\n{% endif %}\n", "<b>1</b>"),
        (
            '<a href="{{ "x>y" }}"\n  class="wide"\n  {% if true %} hidden{% endif %}>\n  go\n</a>',
            '<a href="x&gt;y" class="wide" hidden>go</a>',
        ),
        ("<pre>\n  kept\n    as it is\n</pre>", "<pre>\n  kept\n    as it is\n</pre>"),
        ("a < b\n  and c", "a < b and c"),
    ],
)
def test_a_line_break_is_layout_and_a_written_space_is_not(source: str, sent: str) -> None:
    assert ENVIRONMENT.from_string(source).render() == sent


def test_an_error_names_the_line_of_the_template() -> None:
    source = '<div\n  class="x">\n  <p>\n    words\n    words\n  </p>\n  {{ missing }}\n</div>'

    with pytest.raises(UndefinedError) as caught:
        ENVIRONMENT.from_string(source).render()

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.lineno for frame in frames if frame.filename == "<template>"] == [7]
