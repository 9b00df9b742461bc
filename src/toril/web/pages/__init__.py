"""All pages."""

from typing import Final

from toril.web.pages.overview import OVERVIEW
from toril.web.pages.page import Page

__all__ = ["PAGES"]

PAGES: Final[tuple[Page, ...]] = (*OVERVIEW,)
