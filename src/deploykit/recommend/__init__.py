"""SLA → the cheapest target that meets it, why, and how sure that is."""

from deploykit.recommend.question import Question, recommend

__all__ = ["Question", "recommend"]
