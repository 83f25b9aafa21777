"""From a map to an answer: street networks, places on them, and what is reached."""

from .osm import PROFILES, OsmStreets, Profile, read_osm
from .streets import Streets
from .turns import TurnNetwork, dual, turn_angles

__all__ = [
    "PROFILES", "OsmStreets", "Profile", "Streets", "TurnNetwork", "dual", "read_osm",
    "turn_angles",
]  # fmt: skip
