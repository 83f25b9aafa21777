"""Pictures of a result: a network on a map or laid out, with a path; histogram; matrix."""

from .draw import PANELS, draw
from .projections import great_circle_arcs

__all__ = ["PANELS", "draw", "great_circle_arcs"]
