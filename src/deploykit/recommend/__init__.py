"""SLA → the cheapest target that meets it, why, and how sure that is."""

from deploykit.recommend.ask import recommend
from deploykit.recommend.question import Question

__all__ = ["Question", "recommend"]
