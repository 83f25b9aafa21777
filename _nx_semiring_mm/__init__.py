"""Information that NetworkX reads on import, without loading NumPy or semiring_mm."""

import re
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from networkx.utils.configs import Config

__all__ = ["BackendConfig", "get_info"]

#: The functions of the backend, by the notes for NetworkX's documentation.
_BY_NOTE = {
    "Negative weights: integers, or floats whose sums are exact.": """
        all_pairs_bellman_ford_path all_pairs_bellman_ford_path_length johnson""",
    "": """
        all_pairs_dijkstra all_pairs_dijkstra_path all_pairs_dijkstra_path_length
        all_pairs_shortest_path all_pairs_shortest_path_length average_shortest_path_length
        closeness_centrality floyd_warshall floyd_warshall_numpy
        floyd_warshall_predecessor_and_distance floyd_warshall_tree global_efficiency
        harmonic_centrality local_efficiency multi_source_dijkstra_path
        multi_source_dijkstra_path_length single_source_dijkstra_path
        single_source_dijkstra_path_length single_source_shortest_path
        single_source_shortest_path_length transitive_closure voronoi_cells wiener_index""",
    "Without attr and sp.": "barycenter",
    "Positive weights.": """
        betweenness_centrality betweenness_centrality_subset edge_betweenness_centrality""",
    "Without e and usebounds.": "center diameter periphery radius",
    "Without sp.": "eccentricity harmonic_diameter",
    "To all nodes; positive weights.": "edge_betweenness_centrality_subset",
    "Integer weights or none.": "gutman_index hyper_wiener_index schultz_index",
    "Without target.": """
        multi_source_dijkstra shortest_path shortest_path_length single_source_dijkstra""",
    "Without topo_order.": "transitive_closure_dag",
}
FUNCTIONS = {name: note for note, names in _BY_NOTE.items() for name in names.split()}


class BackendConfig(Config):  # type: ignore[misc]  # networkx has no types
    """``nx.config.backends.semiring_mm``.

    Parameters
    ----------
    device : str
        "auto" (a CUDA device where one is there and gains), "cpu", "cuda" or "cuda:N".
    min_nodes : int
        Smaller graphs are left to NetworkX when it chooses the backend.
    """

    device: str
    min_nodes: int

    def _on_setattr(self, key: str, value: Any) -> Any:
        if key == "device" and not (
            isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda(:\d+)?", value)
        ):
            raise ValueError(f"device is 'auto', 'cpu', 'cuda' or 'cuda:N', got {value!r}")
        if key == "min_nodes" and (type(value) is not int or value < 0):
            raise ValueError(f"min_nodes is an integer of at least 0, got {value!r}")
        return value


def _url() -> dict[str, str]:
    """The project's address, from the first of its ``[project.urls]``."""
    try:
        urls = metadata("semiring-mm").get_all("Project-URL") or []
    except PackageNotFoundError:  # a checkout on the path, not installed
        urls = []
    return {"url": urls[0].partition(", ")[2]} if urls else {}


def get_info() -> dict[str, Any]:
    """The entry point ``networkx.backend_info``."""
    return {
        **_url(),
        "backend_name": "semiring_mm",
        "project": "semiring-mm",
        "package": "semiring_mm",
        "short_summary": "All pairs of shortest paths by semiring products, on CPU or GPU.",
        "functions": {
            name: {"additional_docs": docs} if docs else {} for name, docs in FUNCTIONS.items()
        },
        "default_config": BackendConfig(device="auto", min_nodes=200),
    }
