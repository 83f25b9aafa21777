"""Each page of apps/ runs on small input, checks itself, and draws its picture."""

import itertools
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from optional import DATA, real_file

ROOT = Path(__file__).resolve().parents[2]
APPS = ROOT / "apps"
#: What makes an app quick.
SMALL = {
    "road_network": "--side 12",
    "fifteen_minutes": "",
    "rush_hour": "",
    "hospitals": "",
    "angular": "",
    "widest_paths": "--size 40",
    "align_series": "--length 60",
    "viterbi": "--cells 16 --sequences 3 --length 30",
    "spin_glass": "",
    "reachability": "--nodes 400",
    "centrality": "--nodes 60",
    "nearest_digits": "--known 300 --queries 60",
    "differentiable_paths": "--side 5 --steps 60",
    "road_speeds": "--side 14 --places 50 --steps 80",
    "crf": "--steps 30",
    "strassen": "--side 64",
}
NEEDS = {
    "road_network": ["scipy"],
    "fifteen_minutes": ["geopandas", "pandas", "scipy"],
    "rush_hour": ["geopandas", "pandas", "scipy"],
    "hospitals": ["geopandas", "pandas"],
    "angular": ["geopandas", "networkx"],
    "widest_paths": ["scipy"],
    "align_series": [],
    "viterbi": [],
    "spin_glass": ["opt_einsum"],
    "reachability": ["scipy"],
    "centrality": ["networkx"],
    "nearest_digits": ["scipy"],
    "differentiable_paths": ["torch"],
    "road_speeds": ["torch"],
    "crf": ["torch"],
    "strassen": [],
}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run an app as a program, and return the names that it leaves."""

    def run(name, *arguments):
        for module in ("matplotlib", *NEEDS[name]):
            pytest.importorskip(module)
        import matplotlib.pyplot as plt

        plt.switch_backend("Agg")  # there may be no display
        picture = tmp_path / f"{name}.png"
        program = APPS / f"{name}.py"
        words = [str(program), *map(str, arguments), "--plot", str(picture)]
        monkeypatch.setattr(sys, "argv", words)
        try:
            names = runpy.run_path(str(program), run_name="__main__")
        finally:
            plt.close("all")
        assert picture.read_bytes().startswith(b"\x89PNG")
        pixels = plt.imread(picture)[..., :3]
        assert np.ptp(pixels) > 0.5, "the picture is empty"
        return names

    return run


def small(name):
    return SMALL[name].split()


def test_every_app_is_here_and_listed():
    there = {path.stem for path in APPS.glob("*.py")}
    assert there == set(SMALL) == set(NEEDS)
    readme = (APPS / "README.md").read_text(encoding="utf-8")
    for name in there:
        assert f"[{name}.py]({name}.py)" in readme
        lines = (APPS / f"{name}.py").read_text(encoding="utf-8").splitlines()
        assert len(lines[1]) == len(lines[2])  # the page's title, underlined
        assert set(lines[2]) == {"="}


# --- graphs -------------------------------------------------------------------------------------


def test_road_network(run):
    names = run("road_network", *small("road_network"), "--start", 0, "--end", 143)
    path = names["path"]
    assert (path[0], path[-1]) == (0, 143)
    assert all(edge in names["best"] for edge in itertools.pairwise(path))


def test_road_network_of_rome(run):
    names = run("road_network", "--data", real_file("rome99.gr"))
    assert names["D"].max() == 77403
    # A map made from distances alone shows them: far is far, near is near.
    some, places = slice(None, None, 50), names["places"]
    drawn = np.linalg.norm(places[some, None] - places[some], axis=-1)
    assert np.corrcoef(drawn.ravel(), names["D"][some, some].ravel())[0, 1] > 0.95


def test_fifteen_minutes(run):
    names = run("fifteen_minutes")
    assert names["count"].shape == (1027, 3)
    assert (np.diff(names["count"], axis=1) >= 0).all()
    assert 0.05 < names["sizes"][-1] < names["sizes"][0] < 1.2  # km², of a map of 1.2 km²


def test_rush_hour(run):
    names = run("rush_hour")
    times = [route.weight for route in names["routes"]]
    assert len(times) == 24
    assert times[8] > times[17] > 2 * times[0]  # the worst hours
    assert names["area"][8] < names["area"][0] / 2
    night, jammed = (names["routes"][h] for h in (0, 8))
    assert [*night.edges] != [*jammed.edges]
    main = np.isin(names["net"].streets.columns["highway"], ["primary", "secondary"])
    assert main[list(jammed.edges)].mean() < main[list(night.edges)].mean()


def test_hospitals(run):
    names = run("hospitals")
    best = names["trials"][names["chosen"]]
    np.testing.assert_allclose(names["people"] @ best, names["doctors"].sum() + 4)
    gains = [names["least"](trial) for trial in names["trials"]]
    assert names["least"](best) == max(gains) > min(gains) >= names["least"](names["access"]) > 0


def test_angular(run):
    names = run("angular")
    choice, label, net = names["choice"], names["label"], names["net"]
    assert len(choice) == len(label) == len(net.streets.u) // 2
    # A tenth of the streets, mostly main ones, has the most of it.
    most = np.argsort(-choice)[: len(choice) // 10]
    assert choice[most].sum() > 0.3 * choice.sum()
    kinds = net.streets.columns["highway"][label]
    side = np.isin(kinds, ["residential", "unclassified", "pedestrian"])
    assert side[most].mean() < side.mean() / 2


def test_widest_paths(run):
    names = run("widest_paths", *small("widest_paths"))
    assert set(names["paths"]) == {"widest", "most reliable", "shortest"}


def test_widest_paths_of_the_german_grid(run):
    real_file("scigrid_de_lines.csv")
    names = run("widest_paths", "--data", DATA)
    assert names["n"] == 585
    assert len({tuple(path) for path in names["paths"].values()}) == 3


def test_nearest_digits(run):
    names = run("nearest_digits", *small("nearest_digits"))
    wrong = {name: (guess != names["truth"]).mean() for name, (*_, guess) in names["found"].items()}
    assert max(wrong["cityblock"], wrong["euclidean"]) < 0.3 < wrong["chebyshev"]


def test_reachability(run):
    names = run("reachability", *small("reachability"))
    assert sum(part.sum() for part in names["parts"].values()) == 400


def test_reachability_in_a_file(run, tmp_path):
    (tmp_path / "edges.csv").write_text("from,to\na,b\nb,c\nc,b\nd,e\n")
    names = run("reachability", "--data", tmp_path / "edges.csv")
    assert names["reaches"].tolist() == [3, 2, 2, 2, 1]
    assert {name: part.sum() for name, part in names["parts"].items()} == {
        "in": 1, "core": 2, "out": 0, "others": 2,
    }  # fmt: skip


def test_centrality(run, capsys):
    names = run("centrality", *small("centrality"))
    assert "Beijing to Easter Island, 22,896 km" in capsys.readouterr().out
    assert names["names"][names["closeness"].argmax()] == "Frankfurt"


def test_centrality_of_a_network_in_pieces(run, tmp_path):
    edges = ["from,to,km", "a,b,1", "b,c,2", "c,d,2", "b,d,1", "x,y,9"]
    (tmp_path / "edges.csv").write_text("\n".join(edges))
    names = run("centrality", *small("centrality"), "--data", tmp_path / "edges.csv")
    assert names["names"] == ["a", "b", "c", "d"]
    assert names["diameter"] == 3
    assert names["eccentricity"].tolist() == [3, 2, 3, 2]


@pytest.mark.slow
def test_centrality_of_the_airports_of_openflights(run):
    real_file("routes.dat")
    names = run("centrality", *small("centrality"), "--data", DATA)
    assert names["n"] == 3188


# --- products ---------------------------------------------------------------------------------


def test_strassen(run):
    names = run("strassen", *small("strassen"))
    plain, *others = (error[32:].max() for error in names["errors"])
    assert plain < 10 < 1000 < min(others)


# --- sequences and lattices ---------------------------------------------------------------------


def test_viterbi(run):
    names = run("viterbi", *small("viterbi"))
    assert names["off"](names["decoded"]) < names["off"](names["seen"])


def test_align_series(run):
    names = run("align_series", *small("align_series"))
    assert names["off"] < names["by_index"] / 2
    steps = np.diff(names["path"], axis=0)
    assert steps.min() == 0
    assert steps.max() == 1
    assert names["path"][[0, -1]].tolist() == [[0, 0], [59, 71]]


@pytest.mark.parametrize(("side", "couplings"), [(7, "signs"), (4, "gaussian")])
def test_spin_glass(run, side, couplings):
    names = run("spin_glass", "--side", side, "--couplings", couplings)
    assert names["spins"].shape == (side, side)
    # No other spins in one row make it better: an energy that only looks least would not pass.
    energy, spins, found = names["energy"], names["spins"], names["found"]
    for row in range(side):
        for states in itertools.product([-1, 1], repeat=side):
            other = spins.copy()
            other[row] = states
            assert energy(other, names["right"], names["down"]) >= found - 1e-9


# --- in PyTorch ---------------------------------------------------------------------------------


def test_differentiable_paths(run):
    names = run("differentiable_paths", *small("differentiable_paths"))
    torch = names["torch"]
    assert names["losses"][-1] < names["losses"][0] / 10
    torch.testing.assert_close(names["found"], names["true"], rtol=0.15, atol=0)
    layer = names["Times"](4, 3)
    with torch.no_grad():
        layer.raw.copy_(torch.tensor([0.1, 0.7, 1.9]))
    found, expected = layer(), names["plain"](layer.weights())
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(d.sum(), layer.raw) for d in (found, expected))
    torch.testing.assert_close(ours, theirs)


def test_road_speeds(run):
    names = run("road_speeds", *small("road_speeds"))
    assert names["losses"][-1] < names["losses"][0] / 20
    assert names["after"] < names["before"] / 4
    # Roads of the centre are slow, and are learned to be.
    used, jam = names["used"], names["jam"]
    assert np.corrcoef(names["learned"][used], jam[used])[0, 1] > 0.7


def test_road_speeds_of_chicago(run):
    graph = real_file("ChicagoRegional_net.tntp")
    names = run("road_speeds", "--data", graph, "--places", 30, "--steps", 12)
    assert names["losses"][-1] < names["losses"][0] / 4


def test_crf(run):
    names = run("crf", *small("crf"))
    torch = names["torch"]
    assert names["losses"][-1] < names["losses"][0] / 3
    assert names["chained"] > names["alone"] + 0.1
    generator = torch.Generator().manual_seed(0)
    emissions = torch.rand(2, 4, 3, generator=generator).double()
    transitions = torch.rand(3, 3, generator=generator).double()
    every = torch.tensor(list(itertools.product(range(3), repeat=4)))
    for s in range(2):
        scores = names["sequences"].score(emissions[s].expand(81, 4, 3), transitions, every)
        total = names["plain"](emissions[s : s + 1], transitions)[0]
        torch.testing.assert_close(total, scores.logsumexp(0))
        assert torch.equal(names["viterbi"](emissions[s], transitions), every[scores.argmax()])
