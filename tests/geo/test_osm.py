"""Maps of OpenStreetMap, written by osmium, and what travellers find in them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from semiring_mm.geo import PROFILES, TurnNetwork, network, read_osm
from semiring_mm.geo.streets import distance

osmium = pytest.importorskip("osmium")

MPH = 1.609344


def write(path, text):
    """A map from lines of OPL, as osmium writes it in the format of its name."""
    opl = path.with_name("text.opl")
    opl.write_text(text)
    if path != opl:
        with osmium.SimpleWriter(str(path)) as out:
            osmium.apply(osmium.io.Reader(str(opl)), out)
    return path


def nodes(*numbers, tags=None):
    """Nodes on a line to the east, n thousandths of a degree from each other."""
    tags = tags or {}
    return "".join(f"n{k} T{tags.get(k, '')} x{10 + k / 1000} y50\n" for k in numbers)


def told(call):
    """What a call gives, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return call(), " ".join(str(x.message) for x in caught)


def way(tmp_path, tags, profile, first=""):
    """The speeds along a way of two nodes, either way (0: closed), and the warnings.

    A footbridge that all may use is beside it, so that the map is never empty.
    """
    text = nodes(1, 2, 8, 9) + f"w1 T{tags} Nn1,n2\n" + f"w2 T{_OPEN} Nn8,n9\n"
    streets, words = told(lambda: read_osm(write(tmp_path / "text.opl", text), profile))
    speeds = [0.0, 0.0]
    for e in np.flatnonzero(streets.columns["osmid"] == 1):
        speeds[int(streets.nodes[streets.u[e]] == 2)] = float(streets.columns["speed_kph"][e])
    return tuple(speeds), words


_OPEN = "highway=path,motor_vehicle=yes,bicycle=yes,foot=yes"


# Profiles


@pytest.mark.parametrize(
    ("profile", "tags", "expected"),
    [
        # kinds of roads
        ("driving", "highway=residential", (25, 25)),
        ("driving", "highway=motorway", (90, 0)),
        ("driving", "highway=motorway,oneway=no", (90, 90)),
        ("driving", "highway=footway", (0, 0)),
        ("driving", "highway=construction", (0, 0)),
        ("driving", "highway=pedestrian,area=yes,motor_vehicle=yes", (0, 0)),
        ("driving", "building=yes,route=hiking", (0, 0)),
        ("cycling", "highway=motorway", (0, 0)),
        ("cycling", "highway=cycleway", (15, 15)),
        ("walking", "highway=motorway", (0, 0)),
        ("walking", "highway=steps", (3, 3)),
        ("walking", "highway=cycleway", (0, 0)),
        ("walking", "highway=cycleway,foot=designated", (5, 5)),
        # access
        ("driving", "highway=service,access=private", (0, 0)),
        ("driving", "highway=service,access=destination", (15, 15)),
        ("driving", "highway=service,access=no,motor_vehicle=yes", (15, 15)),
        ("driving", "highway=service,access=yes,motorcar=no", (0, 0)),
        ("driving", "highway=residential,vehicle=no", (0, 0)),
        ("driving", "highway=track", (0, 0)),
        ("driving", "highway=track,access=yes", (0, 0)),
        ("driving", "highway=track,motor_vehicle=yes", (15, 15)),
        ("cycling", "highway=footway,bicycle=yes", (8, 8)),
        ("cycling", "highway=residential,bicycle=use_sidepath", (0, 0)),
        ("cycling", "highway=residential,motor_vehicle=no", (15, 15)),
        ("walking", "highway=residential,vehicle=no,access=yes", (5, 5)),
        ("walking", "highway=residential,access=no", (0, 0)),
        # limits
        ("driving", "highway=primary,maxspeed=50", (50, 50)),
        ("driving", "highway=primary,maxspeed=30%20%mph", (30 * MPH, 30 * MPH)),
        ("driving", "highway=primary,maxspeed=30mph", (30 * MPH, 30 * MPH)),
        ("driving", "highway=primary,maxspeed=walk", (5, 5)),
        ("driving", "highway=motorway,maxspeed=none", (130, 0)),
        ("driving", "highway=primary,maxspeed=50;70", (50, 50)),
        ("driving", "highway=primary,maxspeed=signals", (65, 65)),
        ("driving", "highway=primary,maxspeed=DE:urban", (50, 50)),
        ("driving", "highway=primary,maxspeed=DE:rural", (100, 100)),
        ("driving", "highway=primary,maxspeed=IT:rural", (90, 90)),
        ("driving", "highway=primary,maxspeed=FR:zone30", (30, 30)),
        ("driving", "highway=primary,source:maxspeed=GB:nsl_single", (60 * MPH, 60 * MPH)),
        ("driving", "highway=primary,maxspeed=50,maxspeed:backward=30", (50, 30)),
        ("driving", "highway=primary,maxspeed:type=sign", (65, 65)),
        ("cycling", "highway=residential,maxspeed=10", (10, 10)),
        ("cycling", "highway=residential,maxspeed=50", (15, 15)),
        ("walking", "highway=residential,maxspeed=2", (5, 5)),
        # one way
        ("driving", "highway=primary,oneway=yes", (65, 0)),
        ("driving", "highway=primary,oneway=1", (65, 0)),
        ("driving", "highway=primary,oneway=-1", (0, 65)),
        ("driving", "highway=primary,oneway=reversible", (0, 0)),
        ("driving", "highway=primary,junction=roundabout", (65, 0)),
        ("driving", "highway=primary,junction=roundabout,oneway=no", (65, 65)),
        ("cycling", "highway=primary,oneway=yes", (15, 0)),
        ("cycling", "highway=primary,oneway=yes,oneway:bicycle=no", (15, 15)),
        ("cycling", "highway=primary,oneway=yes,cycleway=opposite_lane", (15, 15)),
        ("walking", "highway=primary,oneway=yes", (5, 5)),
        ("walking", "highway=path,oneway:foot=yes", (5, 0)),
        # ferries
        ("driving", "route=ferry", (0, 0)),
        ("driving", "route=ferry,motor_vehicle=yes", (15, 15)),
        ("walking", "route=ferry", (15, 15)),
        ("walking", "route=ferry,foot=no", (0, 0)),
    ],
)
def test_a_profile_reads_tags(tmp_path, profile, tags, expected):
    speeds, words = way(tmp_path, tags, profile)
    assert_allclose(speeds, expected)
    assert not words


@pytest.mark.parametrize(
    ("profile", "tags", "expected", "words"),
    [
        ("driving", "highway=rood", (0, 0), r"highway=rood is unknown and left out (1 ×)"),
        ("driving", "highway=service,access=maybe", (15, 15), "access=maybe is unknown and has no"),
        ("driving", "highway=service,oneway=perhaps", (15, 15), "oneway=perhaps is unknown and"),
        ("driving", "highway=service,maxspeed=fast", (15, 15), "maxspeed=fast is unknown: the sp"),
        ("driving", "highway=service,maxspeed=0", (15, 15), "maxspeed=0 is unknown"),
        ("walking", "route=ferry,duration=long", (15, 15), "duration=long is unknown: 15 km/h"),
    ],
)
def test_unknown_words_are_told(tmp_path, profile, tags, expected, words):
    speeds, got = way(tmp_path, tags, profile)
    assert speeds == expected
    assert words in got


def test_a_word_is_told_once_with_how_often(tmp_path):
    text = nodes(*range(8)) + "".join(
        f"w{k} Thighway=service,name={k},maxspeed=fast Nn{k},n{k + 1}\n" for k in range(1, 7)
    )
    _, words = told(lambda: read_osm(write(tmp_path / "text.opl", text)))
    assert words.count("maxspeed=fast") == 1
    assert "(6 ×)" in words


@pytest.mark.parametrize(
    ("duration", "seconds"), [("30", 1800), ("1:30", 5400), ("00:20:30", 1230), ("PT1H5M", 3900)]
)
def test_a_ferry_takes_its_time(tmp_path, duration, seconds):
    text = nodes(1, 2, 3) + f"w1 Troute=ferry,duration={duration} Nn1,n2,n3\n"
    text += "w2 Troute=ferry,duration=5 Nn2,n3\n"
    streets = read_osm(write(tmp_path / "text.opl", text), "walking")
    own = streets.columns["osmid"] == 1
    assert own.sum() == 4  # it is cut where the other begins
    assert_allclose(streets.columns["travel_time"][own].sum(), 2 * seconds)
    assert set(streets.columns["highway"]) == {"ferry"}


def test_a_profile_of_ones_own(tmp_path):
    import dataclasses

    slow = dataclasses.replace(PROFILES["driving"], name="moped", speeds={"residential": 12.0})
    assert way(tmp_path, "highway=residential", slow)[0] == (12.0, 12.0)
    assert way(tmp_path, "highway=motorway", slow)[0] == (0.0, 0.0)


# Ways


def edges(streets):
    """Labels of the ends of edges, and their ways."""
    ends = ([streets.nodes[i] for i in x] for x in (streets.u, streets.v))
    return [*zip(*ends, streets.columns["osmid"].tolist(), strict=True)]


CUTS = {
    "where ways meet": (
        "w1 Thighway=road,oneway=yes Nn1,n2,n3,n4\nw2 Thighway=road,oneway=yes Nn3,n9\n",
        [(1, 3, 1), (3, 4, 1), (3, 9, 2)],
    ),
    "not where another is closed": (
        "w1 Thighway=road,oneway=yes Nn1,n2,n3,n4\nw2 Thighway=footway Nn3,n9\n", [(1, 4, 1)],
    ),
    "where it meets itself": (
        "w1 Thighway=road,oneway=yes Nn1,n2,n3,n4,n2\n", [(1, 2, 1), (2, 2, 1)],
    ),
    "a ring": ("w1 Thighway=road,oneway=yes Nn1,n2,n3,n1\n", [(1, 1, 1)]),
    "both ways": ("w1 Thighway=road Nn1,n2,n3\n", [(1, 3, 1), (3, 1, 1)]),
    "backwards": ("w1 Thighway=road,oneway=-1 Nn1,n2,n3\n", [(3, 1, 1)]),
    "the same node twice": ("w1 Thighway=road,oneway=yes Nn1,n2,n2,n3\n", [(1, 3, 1)]),
    "a way of one node": (
        "w1 Thighway=road,oneway=yes Nn1,n2\nw2 Thighway=road Nn2\n", [(1, 2, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CUTS)
def test_ways_are_cut(tmp_path, case):
    text, expected = CUTS[case]
    streets = read_osm(write(tmp_path / "text.opl", nodes(*range(1, 10)) + text))
    assert sorted(edges(streets)) == expected


def test_lines_lengths_and_times(tmp_path):
    text = """n1 x10 y50\nn2 x10.01 y50\nn3 x10.01 y50.02\nn4 x10.02 y50.02
w5 Thighway=residential,maxspeed=36 Nn1,n2,n3\nw6 Thighway=residential,oneway=yes Nn3,n4\n"""
    streets = read_osm(write(tmp_path / "text.opl", text))
    assert edges(streets) == [(1, 3, 5), (3, 1, 5), (3, 4, 6)]
    assert_allclose(streets.line(0), [[10, 50], [10.01, 50], [10.01, 50.02]])
    assert_allclose(streets.line(1), streets.line(0)[::-1])
    points = np.array([[10, 10.01, 10.01], [50, 50, 50.02]])
    length = distance(points[:, :-1], points[:, 1:], "EPSG:4326").sum()
    assert_allclose(streets.columns["length"][:2], length)
    assert 2930 < length < 2945
    assert_allclose(streets.columns["travel_time"][:2], length / 10)
    assert_array_equal(streets.columns["oneway"], [False, False, True])
    assert_array_equal(streets.twin, [1, 0, -1])
    straight = read_osm(tmp_path / "text.opl", geometry=False)
    assert straight.shape is None
    assert_array_equal(straight.columns["length"], streets.columns["length"])


def test_parallel_streets_have_keys(tmp_path):
    text = nodes(1, 2, 3, 4) + "w1 Thighway=road Nn1,n2,n4\nw2 Thighway=road,oneway=yes Nn1,n3,n4\n"
    streets = read_osm(write(tmp_path / "text.opl", text))
    assert [streets.edge_id(e) for e in range(3)] == [(1, 4, 0), (4, 1, 0), (1, 4, 1)]


@pytest.mark.parametrize("suffix", [".osm.pbf", ".osm", ".osm.bz2", ".opl"])
def test_formats_give_the_same(tmp_path, suffix):
    text = nodes(*range(1, 60), tags={7: "barrier=bollard"})
    text += "".join(
        f"w{k} Thighway=residential,name=X%2c%{k},maxspeed={10 + k} Nn{k},n{k + 1},n{k + 3}\n"
        for k in range(1, 50)
    )
    text += "r1 Ttype=restriction,restriction=no_left_turn Mw3@from,n6@via,w6@to\n"
    expected = read_osm(write(tmp_path / "text.opl", text))
    streets = read_osm(write(tmp_path / f"map{suffix}", text))
    assert edges(streets) == edges(expected)
    assert len(streets.bans) == len(expected.bans) > 0
    assert_allclose(streets.columns["travel_time"], expected.columns["travel_time"])
    assert_allclose(streets.x, expected.x)


@pytest.mark.parametrize(
    ("profile", "tags", "stops", "words"),
    [
        ("driving", "barrier=bollard", True, ""),
        ("cycling", "barrier=bollard", False, ""),
        ("driving", "barrier=bollard,motor_vehicle=yes", False, ""),
        ("driving", "barrier=gate", False, ""),
        ("driving", "barrier=gate,access=private", True, ""),
        ("walking", "barrier=gate,access=no,foot=yes", False, ""),
        ("cycling", "barrier=stile", True, ""),
        ("walking", "barrier=wall", True, ""),
        ("driving", "barrier=moat", False, "barrier=moat is unknown and has no effect"),
    ],
)
def test_barriers_stop(tmp_path, profile, tags, stops, words):
    text = nodes(1, 2, 3, tags={2: tags}) + "w1 Thighway=residential,oneway=yes Nn1,n2,n3\n"
    streets, got = told(lambda: read_osm(write(tmp_path / "text.opl", text), profile))
    ends = {(a, b) for a, b, _ in edges(streets)}
    assert ((1, -2) in ends and (2, 3) in ends) == stops
    assert ((1, 3) in ends) == (not stops)
    assert words in got
    assert bool(got) == bool(words)


def test_a_barrier_at_a_crossing_ends_all_streets(tmp_path):
    text = nodes(1, 2, 3, 4, tags={2: "barrier=block"})
    text += "".join(f"w{k} Thighway=road,oneway=yes Nn2,n{k}\n" for k in (1, 3, 4))
    streets = read_osm(write(tmp_path / "text.opl", text))
    assert edges(streets) == [(2, 1, 1), (-2, 3, 3), (-2 - 10**12, 4, 4)]
    assert_array_equal(streets.x[streets.u], [10.002] * 3)


def test_each_barrier_has_dead_ends_of_its_own(tmp_path):
    text = nodes(1, 2, 4, 5, tags={2: "barrier=block", 4: "barrier=block"})
    text += "w1 Thighway=road,oneway=yes Nn5,n4,n2,n1\nw2 Thighway=road,oneway=yes Nn2,n4\n"
    streets = read_osm(write(tmp_path / "text.opl", text))
    ends = [(a, b) for a, b, _ in edges(streets)]
    far = -(10**12)
    assert ends == [(5, -4), (4, -2 + far), (2, 1), (-2, -4 + far)]


def test_a_way_ends_where_the_file_lacks_nodes(tmp_path):
    text = nodes(1, 2, 3, 6, 7) + "w1 Thighway=road,oneway=yes Nn1,n2,n4,n5,n6,n7\n"
    streets, words = told(lambda: read_osm(write(tmp_path / "text.opl", text)))
    assert edges(streets) == [(1, 2, 1), (6, 7, 1)]
    assert "not in the file, and ways end before them (2 ×)" in words


# Restrictions

#: A crossing, 5, of four ways: 1 from the west, 2 east, 3 north, 4 south; and 6 goes on from 1.
TOWN = nodes(1, 2, 3, 4, 5, 6) + "".join(
    f"w{k} Thighway=residential Nn{k},n5\n" for k in range(1, 5)
) + "w6 Thighway=residential Nn6,n1\n"  # fmt: skip
#: 7 goes on from there, and 8 leaves node 1.
MORE = nodes(7, 8) + "w7 Thighway=residential Nn7,n6\nw8 Thighway=residential Nn8,n1\n"
_ALL = {(a, b) for a in range(1, 5) for b in range(1, 5)}


def only(start, *ends):
    return {(start, b) for b in range(1, 5)} - {(start, b) for b in ends}


RESTRICTIONS = {
    "no": ("restriction=no_left_turn Mw1@from,n5@via,w3@to", {(1, 3)}, ""),
    "no u turn": ("restriction=no_u_turn Mw1@from,n5@via,w1@to", {(1, 1)}, ""),
    "only": ("restriction=only_straight_on Mw1@from,n5@via,w2@to", only(1, 2), ""),
    "no entry": (
        "restriction=no_entry Mw1@from,w2@from,n5@via,w3@to", {(1, 3), (2, 3)}, "",
    ),
    "for cars": ("restriction:motorcar=no_left_turn Mw1@from,n5@via,w3@to", {(1, 3)}, ""),
    "for lorries": ("restriction:hgv=no_left_turn Mw1@from,n5@via,w3@to", set(), ""),
    "except cars": (
        "restriction=no_left_turn,except=psv;motorcar Mw1@from,n5@via,w3@to", set(), "",
    ),
    "except buses": ("restriction=no_left_turn,except=psv Mw1@from,n5@via,w3@to", {(1, 3)}, ""),
    "elsewhere": ("restriction=no_left_turn Mw1@from,n77@via,w3@to", set(), ""),
    "some hours": (
        "restriction:conditional=no_left_turn%20%@%20%(7-9) Mw1@from,n5@via,w3@to", set(),
        "restrictions at some hours are not obeyed (1 ×)",
    ),
    "by old tags": (
        "restriction=no_left_turn,hour_on=7:00,hour_off=9:00 Mw1@from,n5@via,w3@to", set(),
        "restrictions at some hours are not obeyed (1 ×)",
    ),
    "some hours of lorries": (
        "restriction:hgv=no_left_turn,hour_on=7:00 Mw1@from,n5@via,w3@to", set(), "",
    ),
    "some hours, except cars": (
        "restriction:conditional=no_left_turn%20%@%20%(7-9),except=motorcar Mw1@from,n5@via,w3@to",
        set(), "",
    ),
    "but some hours": (
        "restriction=no_left_turn,restriction:conditional=none%20%@%20%(Sa) Mw1@from,n5@via,w3@to",
        {(1, 3)}, "restrictions with others at some hours are obeyed at all hours (1 ×)",
    ),
    "via a way": ("restriction=no_left_turn Mw6@from,w1@via,w3@to", {(6, 1, 3)}, ""),
    "via a way to several": (
        "restriction=no_exit Mw6@from,w1@via,w3@to,w4@to", {(6, 1, 3), (6, 1, 4)}, "",
    ),
    "only via a way": (
        "restriction=only_straight_on Mw6@from,w1@via,w2@to",
        {(6, 1, 1), (6, 1, 3), (6, 1, 4)}, "",
    ),
    "via ways": ("restriction=no_left_turn Mw7@from,w1@via,w6@via,w3@to", {(7, 6, 1, 3)}, ""),
    "only via ways": (
        "restriction=only_right_turn Mw7@from,w6@via,w1@via,w4@to",
        {(7, 6, 6), (7, 6, 8), (7, 6, 1, 1), (7, 6, 1, 2), (7, 6, 1, 3)}, "",
    ),
    "around via a way": ("restriction=no_u_turn Mw6@from,w1@via,w1@to", {(6, 1, 1)}, ""),
    "via ways that do not meet": (
        "restriction=no_left_turn Mw6@from,w3@via,w4@to", set(),
        "restrictions via ways that do not lead from way to way are not obeyed (1 ×)",
    ),
    "via a way that is closed": (
        "restriction=no_left_turn Mw6@from,w9@via,w4@to", set(), "",
    ),
    "via a way to a closed one": (
        "restriction=only_left_turn Mw6@from,w1@via,w9@to", set(),
        "restrictions to a way that is closed are not obeyed (1 ×)",
    ),
    "via a way and a node": (
        "restriction=no_left_turn Mw6@from,w1@via,n5@via,w4@to", set(),
        "restrictions without a way from, a node or ways via",
    ),
    "no via": (
        "restriction=no_u_turn Mw6@from,w3@to", set(), "restrictions without a way from",
    ),
    "unknown": (
        "restriction=not_left Mw1@from,n5@via,w3@to", set(), "restriction=not_left is unknown",
    ),
    "to a closed way": (
        "restriction=only_straight_on Mw1@from,n5@via,w9@to", set(),
        "restrictions to a way that is closed are not obeyed (1 ×)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RESTRICTIONS)
def test_restrictions_ban_turns(tmp_path, case):
    text, expected, words = RESTRICTIONS[case]
    text = f"{TOWN}{MORE}r1 Ttype=restriction,{text}\n"
    streets, got = told(lambda: read_osm(write(tmp_path / "text.opl", text)))
    osmid = streets.columns["osmid"]
    bans = [row[row >= 0] for row in streets.bans]
    assert {tuple(osmid[ban].tolist()) for ban in bans} == expected
    for ban in bans:
        assert_array_equal(streets.v[ban[:-1]], streets.u[ban[1:]])
    assert words in got
    assert bool(got) == bool(words)
    net = TurnNetwork(streets, "length")
    for a, b in _ALL:
        if a != b:
            banned = (a, b) in expected
            assert (net.path(a, b) == [a, 5, b]) == (not banned)
            for begin, first in ((6, (6,)), (7, (7, 6))):
                way = (*first, 1, b) if a == 1 else ()
                bad = any(way[k:m] in expected for k in range(3) for m in range(2, len(way) + 1))
                nodes_of = [*first, 1, 5, b]
                assert not way or (net.path(begin, b) == nodes_of) == (not bad), (way, expected)


def test_a_way_via_which_a_restriction_leads_may_be_cut(tmp_path):
    """By a street across, into which an only_... does not let turn."""
    text = nodes(*range(1, 8)) + (
        "w1 Thighway=road Nn1,n2\nw2 Thighway=road Nn2,n3,n4\nw3 Thighway=road Nn4,n5\n"
        "w4 Thighway=road Nn3,n6\nw5 Thighway=road Nn4,n7\n"
    )
    relation = "r1 Ttype=restriction,restriction={} Mw1@from,w2@via,w3@to\n"
    no, only_to = (
        read_osm(write(tmp_path / f"{kind}.opl", text + relation.format(kind)))
        for kind in ("no_straight_on", "only_straight_on")
    )

    def ends(streets):
        of = [[streets.edge_id(e)[:2] for e in row[row >= 0]] for row in streets.bans]
        return {(ban[0][0], *(b for _, b in ban)) for ban in of}

    assert ends(no) == {(1, 2, 3, 4, 5)}
    assert ends(only_to) == {(1, 2, 3, 2), (1, 2, 3, 6), (1, 2, 3, 4, 3), (1, 2, 3, 4, 7)}
    net = TurnNetwork(no, "length")
    assert net.path(2, 5) == [2, 3, 4, 5]  # of who begins there nobody knows where from
    assert net.path(1, 5) != [1, 2, 3, 4, 5]
    assert net.path(1, 7) == [1, 2, 3, 4, 7]
    net = TurnNetwork(only_to, "length")
    assert net.path(1, 5) == [1, 2, 3, 4, 5]
    assert net.path(1, 6)[:5] == [1, 2, 3, 4, 5]
    assert net.path(2, 6) == [2, 3, 6]


def test_a_restriction_via_ways_of_a_way_that_goes_on_is_told(tmp_path):
    text = nodes(1, 2, 3, 4, 5) + "w1 Thighway=road Nn1,n2,n3\nw2 Thighway=road Nn2,n4\n"
    text += "w3 Thighway=road Nn4,n5\n"
    text += "r1 Ttype=restriction,restriction=no_left_turn Mw1@from,w2@via,w3@to\n"
    streets, words = told(lambda: read_osm(write(tmp_path / "text.opl", text)))
    assert not len(streets.bans)
    assert "goes on beyond the crossing are not obeyed (1 ×)" in words


def test_a_restriction_of_a_way_that_goes_on_is_told(tmp_path):
    text = nodes(1, 2, 3, 4) + "w1 Thighway=road Nn1,n2,n3\nw2 Thighway=road Nn2,n4\n"
    text += "r1 Ttype=restriction,restriction=no_left_turn Mw1@from,n2@via,w2@to\n"
    streets, words = told(lambda: read_osm(write(tmp_path / "text.opl", text)))
    assert not len(streets.bans)
    assert "goes on beyond the crossing are not obeyed (1 ×)" in words


def test_around_on_a_way_that_goes_on_is_banned_both_ways(tmp_path):
    text = nodes(1, 2, 3, 4) + "w1 Thighway=road Nn1,n2,n3\nw2 Thighway=road Nn2,n4\n"
    text += "r1 Ttype=restriction,restriction=no_u_turn Mw1@from,n2@via,w1@to\n"
    streets = read_osm(write(tmp_path / "text.opl", text))
    ends = {(streets.edge_id(e)[:2], streets.edge_id(f)[:2]) for e, f in streets.bans}
    assert ends == {((1, 2), (2, 1)), ((3, 2), (2, 3))}


@pytest.mark.parametrize(("profile", "bans"), [("cycling", 1), ("walking", 0)])
def test_restrictions_are_of_travellers(tmp_path, profile, bans):
    text = TOWN + "r1 Ttype=restriction,restriction=no_left_turn Mw1@from,n5@via,w3@to\n"
    assert len(read_osm(write(tmp_path / "text.opl", text), profile).bans) == bans


# Networks


def test_a_map_is_a_network(tmp_path):
    streets = read_osm(write(tmp_path / "map.osm.pbf", TOWN))
    net = network(streets, weight="travel_time")
    assert_allclose(net.distance(1, 2), streets.columns["travel_time"][[0, 2]].sum())
    assert net.snap(10.0035, 50.0001).distance < 12


def test_a_file_is_a_network_for_a_profile(tmp_path):
    path = write(
        tmp_path / "map.osm.pbf", TOWN.replace("w4 Thighway=residential", "w4 Thighway=path")
    )
    assert len(network(path, largest=True).nodes) == 5
    assert len(network(path, profile="walking", weight="travel_time").nodes) == 6


def test_restrictions_stay_with_the_largest_part(tmp_path):
    text = nodes(7, 8) + "w0 Thighway=residential Nn7,n8\n" + TOWN
    text += "r1 Ttype=restriction,restriction=no_left_turn Mw1@from,n5@via,w3@to\n"
    text += "r2 Ttype=restriction,restriction=no_left_turn Mw6@from,w1@via,w2@to\n"
    streets = network(write(tmp_path / "map.osm.pbf", text), largest=True).streets
    assert 7 not in streets.nodes
    bans = [[streets.edge_id(e)[:2] for e in row[row >= 0]] for row in streets.bans]
    assert bans == [[(1, 5), (5, 3)], [(6, 1), (1, 5), (5, 2)]]
    e = streets.bans[0, 0]
    turned = streets.taken(np.arange(len(streets.u)), backward=np.arange(len(streets.u)) == e)
    assert not len(turned.bans)


def bad(name, text=None):
    def call(folder, **options):
        path = folder / name
        if text is not None:
            path.write_text(text)
        return read_osm(path, **options)

    return call


BAD = {
    "no file": (bad("none.osm.pbf"), {}, FileNotFoundError, "there is no file '.*none.osm.pbf'"),
    "no format": (bad("map.xyz", "x"), {}, ValueError, "osmium does not read '.*map.xyz'"),
    "damaged": (bad("map.osm.pbf", "x" * 99), {}, ValueError, "osmium does not read '.*pbf'"),
    "damaged xml": (bad("map.osm", "<osm><way"), {}, ValueError, "osmium does not read '.*osm'"),
    "empty": (bad("map.opl", ""), {}, ValueError, "no way that is open to driving"),
    "nothing open": (
        bad("map.opl", nodes(1, 2) + "w1 Thighway=steps Nn1,n2\n"), {}, ValueError,
        "'.*map.opl' has no way that is open to driving",
    ),
    "no nodes": (
        bad("map.opl", "w1 Thighway=road Nn1,n2\n"), {}, ValueError, "no way has two nodes",
    ),
    "negative ids": (
        bad("map.opl", "n-1 x1 y1\nn-2 x2 y2\nw-1 Thighway=road Nn-1,n-2\n"), {}, ValueError,
        "ids of nodes are positive",
    ),
    "no profile": (
        bad("map.opl", ""), {"profile": "flying"}, ValueError,
        "one of 'driving', 'cycling', 'walking', or a Profile, got 'flying'",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*not in the file")
@pytest.mark.parametrize("case", BAD)
def test_bad_maps_are_told(tmp_path, case):
    call, options, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call(tmp_path, **options)


def test_the_reader_is_named_where_it_is_absent(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "osmium", None)
    with pytest.raises(ImportError, match=r"semiring-mm\[osm\]"):
        read_osm(tmp_path / "map.osm.pbf")
