"""From a map to an answer: street networks, places on them, and what is reached."""

from .streets import Streets

__all__ = ["Streets"]
