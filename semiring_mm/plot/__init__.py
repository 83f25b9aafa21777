"""Pictures of a result: a network on a map or laid out, with a path; histogram; matrix."""

from .draw import PANELS, draw, draw_statistics, draw_streets
from .network import draw_network, view_of
from .projections import great_circle_arcs

__all__ = [
    "PANELS", "draw", "draw_network", "draw_statistics", "draw_streets",
    "great_circle_arcs", "view_of",
]  # fmt: skip
