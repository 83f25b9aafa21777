"""From a map to an answer: street networks, places on them, and what is reached.

>>> import semiring_mm as sm
>>> nodes = {"id": ["a", "b", "c"], "x": [0.0, 300.0, 300.0], "y": [0.0, 0.0, 400.0]}
>>> net = sm.geo.network((nodes, {"u": ["a", "b"], "v": ["b", "c"]}))
>>> places = net.snap([[310.0, 100.0], [60.0, -9.0]], ids=["school", "home"])
>>> net.distances(places, places)
LabelledArray, 2 x 2, float64
        school  home
school       0   340
home       340     0
"""

from ..naming import listing
from .network import Network, Route, network
from .osm import PROFILES, OsmStreets, Profile, read_osm
from .outputs import solver_matrix, to_xarray
from .places import Places
from .streets import Streets
from .turns import TurnNetwork, dual, turn_angles

__all__ = [
    "PROFILES", "Network", "OsmStreets", "Places", "Profile", "Route", "Streets", "TurnNetwork",
    "dual", "network", "read_osm", "solver_matrix", "to_xarray", "turn_angles",
]  # fmt: skip
__dir__ = listing(__all__)
