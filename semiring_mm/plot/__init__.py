"""Pictures of a result: a network on a map or laid out, with a path; histogram; matrix."""

from .draw import PANELS, draw
from .network import draw_network, view_of
from .projections import great_circle_arcs

__all__ = ["PANELS", "draw", "draw_network", "great_circle_arcs", "view_of"]
